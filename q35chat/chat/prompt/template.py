"""A conversation as the model reads it: token ids, picture places, mRoPE positions, slot keys.

The prompt is the checkpoint's template over the whole conversation, rendered once; what was
tokenised before is remembered. A text that must not be tokenised with the rest is replaced by a
marker before the template is rendered, and its ids take the marker's place after it: what the model
wrote itself goes in as its own ids, and what a user wrote never becomes a special token.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import numpy as np

from q35chat.chat.prompt.cache import SizedCache
from q35chat.chat.prompt.pictures import PlacedPicture
from q35chat.chat.prompt.tokenizer import (
    ChatTokenizer,
    Message,
    token_bytes,
    whole_characters,
)
from q35chat.chat.values import Tools, Turn
from q35chat.engine.session import Array
from q35chat.errors import BundleError
from q35chat.text import pluralise
from q35chat.vision.positions import mrope_positions

LEAST_SHARED = 64
"""Tokens that several chats begin with at least, for a state of their own."""

_REMEMBERED: Final = 2 << 20
"""Bytes of texts whose ids are kept."""
_ENTRY: Final = 256  # bytes of one that holds next to nothing
_ANSWERS: Final = 4_096
_HEADERS: Final = 64
_MARKER: Final = re.compile("\ue000([0-9a-f]{32}):([0-9]{1,9})\ue001")


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """T tokens to be in the state before the next one is sampled.

    `ids` [T] int64; `keys` [T] int64 are the ids with each picture token replaced by its picture's
    key; `positions` [3, T] int64. `ends` are token counts at which a turn ends and a later prompt
    may part from this one, the last of them before the answer; `shared` are those at which what
    other chats may begin with ends: the instructions, the pictures of the first question. `opened`
    tells that the prompt ends inside a thought, `written` are the ids at its end that the model
    wrote itself, when an answer is gone on with. A `plain` one is no conversation, only text.
    """

    ids: Array
    keys: Array
    positions: Array
    pictures: tuple[PlacedPicture, ...]
    ends: tuple[int, ...]
    opened: bool
    written: tuple[int, ...]
    shared: tuple[int, ...] = ()
    plain: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_text(cls, ids: Sequence[int]) -> Prompt:
        """A prompt that is text alone, whatever its `ids` name."""
        numbers = np.array(ids, np.int64)
        return cls(
            ids=numbers,
            keys=numbers.copy(),
            positions=mrope_positions(np.zeros(len(ids), np.bool_), [])[0],
            pictures=(),
            ends=(len(ids) - 1,) if len(ids) > 1 else (),
            opened=False,
            written=(),
            plain=True,
        )

    @property
    def image_tokens(self) -> int:
        """Slots that pictures take."""
        return sum(picture.tokens for picture in self.pictures)

    def until(self, end: int) -> Prompt:
        """Its first `end` tokens, which hold all of its pictures."""
        return replace(
            self,
            ids=self.ids[:end],
            keys=self.keys[:end],
            positions=self.positions[:, :end],
            ends=tuple(other for other in self.ends if other < end),
            opened=False,
            written=(),
        )


class ConversationTemplate:
    """One tokenizer's template. `stop_ids` end an answer and are the template's to write, and so
    is `picture_id`, the placeholder of a picture where there are any. For any thread."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        stop_ids: frozenset[int],
        picture_id: int | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._tags = tokenizer.tags
        self._stop_ids = stop_ids
        self._picture_id = picture_id
        self._pieces = SizedCache[str, Array](_bytes_of, _REMEMBERED)
        self._answers = SizedCache[bytes, slice](lambda *_: 1, _ANSWERS)
        self._headers = SizedCache[tuple[object, ...], Array](lambda *_: 1, _HEADERS)

    def prompt(
        self,
        turns: Sequence[Turn],
        pictures: Sequence[PlacedPicture],
        *,
        thinking: bool,
        effort: str = "",
        preserve: bool | None = None,
        tools: Tools = (),
    ) -> Prompt:
        """The prompt of `turns`; `pictures` are those of all turns in order. `effort` and
        `preserve` are what the template may offer, `tools` what the model may call.

        Turns that end with an answer are gone on with. Raises BundleError when the template places
        another number of pictures.
        """
        asked, written = list(turns), list[int]()
        if turns[-1].role == "assistant":
            unfinished = asked.pop()
            written = self._written(unfinished)
            thinking = bool(unfinished.reasoning) or self._tags.close in unfinished.token_ids
        chosen = self._tokenizer.offers.chosen(effort, preserve)
        rendered = self._rendered(asked, thinking, chosen, tools)
        header = self._header(thinking, chosen)
        widths = _widths(rendered == self._picture_id, pictures)
        ids = np.concatenate([np.repeat(rendered, widths), np.array(written, np.int64)])
        if not ids.size:
            raise BundleError("the chat template wrote nothing; export the bundle again")
        is_image = ids == self._picture_id
        keys = ids.copy()
        keys[is_image] = np.repeat(
            np.array([picture.key for picture in pictures], np.int64),
            [picture.tokens for picture in pictures],
        )
        grids = [(picture.rows, picture.columns) for picture in pictures]
        places = np.concatenate([[0], np.cumsum(widths)])
        ends = tuple(int(end) for end in places[self._ends(rendered, header)] if end > 0)
        return Prompt(
            ids=ids,
            keys=keys,
            positions=mrope_positions(is_image, grids)[0],
            pictures=tuple(pictures),
            ends=ends,
            opened=self._tags.left_open(header.tolist()),
            written=tuple(written),
            shared=_shared(turns, ends, np.flatnonzero(is_image) + 1, pictures),
        )

    def _rendered(
        self,
        turns: Sequence[Turn],
        thinking: bool,
        chosen: Mapping[str, object],
        tools: Tools,
    ) -> Array:
        """The conversation [T] int64 up to where the answer begins, one placeholder a picture."""
        markers = _Markers()
        messages = [self._message(turn, markers) for turn in turns]
        if tools:
            chosen = {**chosen, "tools": self._literal(tools, markers)}
        text = self._tokenizer.render(
            messages, generation_prompt=True, thinking=thinking, chosen=chosen
        )
        return markers.ids(text, self._encoded)

    def _ends(self, ids: Array, header: Array) -> list[int]:
        """Counts of rendered tokens at which a turn ends: users cannot write stop ids.

        The last one is before the header of the answer.
        """
        end = max(len(ids) - len(header), 0)
        marked = (np.flatnonzero(np.isin(ids, list(self._stop_ids))) + 1).tolist()
        return [*marked[:-1], end] if np.array_equal(ids[end:], header) else marked

    def _written(self, turn: Turn) -> list[int]:
        """All that the model wrote in an unfinished answer, without what ended it.

        Where its ids are not known its texts are tokenised again.
        """
        if turn.token_ids:
            return self._own(turn.token_ids)
        answer = self._tokenizer.encode_literally(turn.text)
        if not turn.reasoning:
            return answer
        reasoning = self._tokenizer.encode_literally(turn.reasoning)
        if not answer or self._tags.close is None:
            return reasoning
        line_end, gap = map(self._tokenizer.encode_literally, ("\n", "\n\n"))
        return [*reasoning, *line_end, self._tags.close, *gap, *answer]

    def _message(self, turn: Turn, markers: _Markers) -> Message:
        text = self._content(turn, markers)
        content: Any = text
        if turn.attachments:
            content = [{"type": "image"} for _ in turn.attachments]
            content += [{"type": "text", "text": text}] if text else []
        role = self._tokenizer.offers.instructor if turn.role == "system" else turn.role
        message: dict[str, Any] = {"role": role, "content": content}
        if turn.role == "assistant":
            message["reasoning_content"] = turn.reasoning
        if turn.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.loads(call.arguments)},
                }
                for call in turn.calls
            ]
            message["tool_calls"] = self._literal(message["tool_calls"], markers)
        return message

    def _literal(self, value: Any, markers: _Markers) -> Any:  # noqa: ANN401  (JSON)
        """`value` with a marker for each name of a special token in its texts, which a template may
        write as JSON: such a name needs no escape."""
        if isinstance(value, Mapping):
            return {name: self._literal(part, markers) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._literal(part, markers) for part in value]
        if isinstance(value, str):
            for name in self._tokenizer.special_names_in(value):
                value = value.replace(name, markers.add(self._tokenizer.encode_literally(name)))
        return value

    def _content(self, turn: Turn, markers: _Markers) -> str:
        if turn.role == "assistant" and turn.token_ids:
            spelling = self._answers.of(_digest(turn), lambda: self._spelling(turn))
            if ids := self._own(turn.token_ids)[spelling]:
                return markers.add(ids)
        if self._tokenizer.spells_special(turn.text):
            return markers.add(self._tokenizer.encode_literally(turn.text.strip()))
        return turn.text

    def _spelling(self, turn: Turn) -> slice:
        """Which of the model's own ids spell the visible answer; none where they do not."""
        ids = self._own(turn.token_ids)
        begin = ids.index(self._tags.close) + 1 if self._tags.close in ids else 0
        while begin < len(ids) and not token_bytes(self._tokenizer, ids[begin]).strip(b"\n"):
            begin += 1
        spelled = whole_characters(self._tokenizer, ids[begin:]).strip("\n")
        return slice(begin, None if spelled and spelled == turn.text.strip("\n") else begin)

    def _own(self, ids: Sequence[int]) -> list[int]:
        """What the model wrote of `ids`, without a picture that is none."""
        kept = ids[:-1] if ids and ids[-1] in self._stop_ids else ids
        return [token for token in kept if token != self._picture_id]

    def _encoded(self, text: str) -> Array:
        """The ids of a part of a prompt, [T] int32."""
        if not text:
            return np.zeros(0, np.int32)
        return self._pieces.of(text, lambda: np.array(self._tokenizer.encode(text), np.int32))

    def _header(self, thinking: bool, chosen: Mapping[str, object]) -> Array:
        """The ids that the template writes after a question, before the answer."""

        def header() -> Array:
            question = [{"role": "user", "content": "a"}]
            asked, told = (
                self._tokenizer.render(
                    question, generation_prompt=prompted, thinking=thinking, chosen=chosen
                )
                for prompted in (True, False)
            )
            return self._encoded(asked.removeprefix(told))

        return self._headers.of((thinking, *chosen.items()), header)


class _Markers:
    """Texts that no one writes, each standing for ids."""

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._ids: list[list[int]] = []

    def add(self, ids: list[int]) -> str:
        self._ids.append(ids)
        return f"\ue000{self._name}:{len(self._ids) - 1}\ue001"

    def ids(self, text: str, encode: Callable[[str], Array]) -> Array:
        """The ids of `text`, those of its markers in their places."""
        found, begin = list[Array](), 0
        for marker in _MARKER.finditer(text):
            if marker[1] == self._name:
                found.append(encode(text[begin : marker.start()]))
                found.append(np.array(self._ids[int(marker[2])], np.int64))
                begin = marker.end()
        return np.concatenate([*found, encode(text[begin:])]).astype(np.int64)


def _bytes_of(text: str, ids: Array) -> int:
    """What a text and its ids take."""
    return sys.getsizeof(text) + sys.getsizeof(ids) + _ENTRY


def _digest(turn: Turn) -> bytes:
    """That of an answer's ids and text, which no other answer has."""
    ids = np.array(turn.token_ids, np.int64).tobytes()
    text = turn.text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(ids + text, digest_size=16, salt=len(ids).to_bytes(8, "little")).digest()


def _shared(
    turns: Sequence[Turn], ends: Sequence[int], after: Array, pictures: Sequence[PlacedPicture]
) -> tuple[int, ...]:
    """Where the instructions end, and the pictures of the first question; `after` are the token
    counts after each token of a picture. What is short costs little to read."""
    first = next((turn for turn in turns if turn.role == "user"), turns[0])
    shown = sum(picture.tokens for picture in pictures[: len(first.attachments)])
    found = [*ends[: turns[0].role == "system"], *map(int, after[max(shown - 1, 0) : shown])]
    return tuple(end for end in found if end >= LEAST_SHARED)


def _widths(is_placeholder: Array, pictures: Sequence[PlacedPicture]) -> Array:
    """How many tokens each rendered one stands for, [T] int64. Raises BundleError."""
    places = int(is_placeholder.sum())
    if places != len(pictures):
        raise BundleError(
            f"the chat template made {pluralise(places, 'place')} for "
            f"{pluralise(len(pictures), 'picture')}: export the bundle again"
        )
    widths = np.ones(len(is_placeholder), np.int64)
    widths[is_placeholder] = [picture.tokens for picture in pictures]
    return widths
