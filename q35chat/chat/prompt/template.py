"""Turns to ids through the checkpoint's template, with the model's own ids kept as they are.

A text that must not be tokenised with the rest is replaced by a marker before the template is
rendered, and its ids take the marker's place after it. A conversation is rendered once; what was
tokenised before is remembered. Knows no pictures but their places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from q35chat.chat.prompt.size_cache import Remembered
from q35chat.chat.prompt.tokenizer import ChatTokenizer, Message
from q35chat.chat.turn.detokenize import token_bytes, whole_characters
from q35chat.chat.turn.thinking import ThinkTags
from q35chat.chat.values import Turn
from q35chat.engine.session import Array

_Own = tuple[tuple[int, ...], str]


class ConversationTemplate:
    """One tokenizer's template. `stop_ids` end an answer and are the template's to write, and so
    is `picture_id`, the placeholder of a picture. For any thread."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        tags: ThinkTags,
        stop_ids: frozenset[int],
        picture_id: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._tags = tags
        self._stop_ids = stop_ids
        self._picture_id = picture_id
        self._pieces: Remembered[str, Array] = Remembered(self._encoded, len)
        self._answers: Remembered[_Own, list[int]] = Remembered(self._spelled, _own_length)
        self._headers: Remembered[bool, Array] = Remembered(self._header, int)

    def ids(self, turns: Sequence[Turn], *, thinking: bool) -> Array:
        """The conversation [T] int64 up to where the answer begins, one placeholder a picture."""
        markers = _Markers()
        messages = [self._message(turn, markers) for turn in turns]
        text = self._tokenizer.render(messages, generation_prompt=True, thinking=thinking)
        return markers.ids(text, self._pieces.of)

    def ends(self, ids: Array, *, thinking: bool) -> list[int]:
        """Counts of tokens at which a turn ends, in what `ids` gave. Users cannot write stop ids.

        The last one is before the header of the answer.
        """
        header = self._headers.of(thinking)
        end = max(len(ids) - len(header), 0)
        marked = np.flatnonzero(np.isin(ids, list(self._stop_ids))) + 1
        if not np.array_equal(ids[end:], header):
            return [int(place) for place in marked]
        return [*(int(place) for place in marked[:-1]), end]

    def opens_thought(self, *, thinking: bool) -> bool:
        """Whether an answer begins inside a thought."""
        return self._tags.left_open(self._headers.of(thinking).tolist())

    def thought(self, turn: Turn) -> bool:
        """Whether the model was thinking when it wrote `turn`."""
        return bool(turn.reasoning) or self._tags.close in turn.token_ids

    def written_ids(self, turn: Turn) -> list[int]:
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
        message = {"role": turn.role, "content": content}
        if turn.role == "assistant":
            message["reasoning_content"] = turn.reasoning
        return message

    def _content(self, turn: Turn, markers: _Markers) -> str:
        if turn.role == "assistant" and turn.token_ids:
            ids = self._answers.of((turn.token_ids, turn.text))
            if ids:
                return markers.add(ids)
        if self._tokenizer.spells_special(turn.text):
            return markers.add(self._tokenizer.encode_literally(turn.text.strip()))
        return turn.text

    def _spelled(self, own: _Own) -> list[int]:
        """The model's own ids of the visible answer; none where they do not spell it."""
        ids = self._own(own[0])
        if self._tags.close in ids:
            ids = ids[ids.index(self._tags.close) + 1 :]
        while ids and not token_bytes(self._tokenizer, ids[0]).strip(b"\n"):
            del ids[0]
        spelled = whole_characters(self._tokenizer, ids).strip("\n")
        return ids if spelled and spelled == own[1].strip("\n") else []

    def _own(self, ids: Sequence[int]) -> list[int]:
        """What the model wrote of `ids`, without a picture that is none."""
        kept = ids[:-1] if ids and ids[-1] in self._stop_ids else ids
        return [token for token in kept if token != self._picture_id]

    def _encoded(self, text: str) -> Array:
        return np.array(self._tokenizer.encode(text), np.int64)

    def _header(self, thinking: bool) -> Array:
        """The ids that the template writes after a question, before the answer."""
        question = [{"role": "user", "content": "a"}]
        asked, told = (
            self._tokenizer.render(question, generation_prompt=prompted, thinking=thinking)
            for prompted in (True, False)
        )
        return self._encoded(asked.removeprefix(told))


def _own_length(own: _Own) -> int:
    return len(own[0])


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
        parts = re.split(f"\ue000{self._name}:([0-9]+)\ue001", text)
        found: list[Array] = []
        for place, part in enumerate(parts):
            if place % 2:
                found.append(np.array(self._ids[int(part)], np.int64))
            elif part:
                found.append(encode(part))
        return np.concatenate(found) if found else np.zeros(0, np.int64)
