"""Turns to ids through the checkpoint's template, with the model's own ids kept as they are.

A text that must not be tokenised with the rest is replaced by a marker before the template is
rendered, and its ids take the marker's place after it. Knows no pictures but their places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from q35chat.chat.detokenize import whole_characters
from q35chat.chat.thinking import ThinkTags
from q35chat.chat.tokenizer import ChatTokenizer, Message
from q35chat.chat.values import Turn


class ConversationTemplate:
    """One tokenizer's template. `stop_ids` end an answer and are the template's to write."""

    def __init__(self, tokenizer: ChatTokenizer, tags: ThinkTags, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._tags = tags
        self._stop_ids = stop_ids

    def ids(self, turns: Sequence[Turn], *, generation_prompt: bool, thinking: bool) -> list[int]:
        """The conversation's ids, one placeholder token a picture."""
        return self._ids(turns, _Markers(), generation_prompt=generation_prompt, thinking=thinking)

    def parting(self, turns: Sequence[Turn], *, thinking: bool) -> Iterator[list[int]]:
        """Ids of conversations that a later prompt may share a beginning with, shortest first.

        One has another last question, one goes on after the last question in any way.
        """
        markers = _Markers()
        other = Turn("user", markers.add([]))
        if turns[-1].role == "user" and len(turns) > 1:
            yield self._ids(
                (*turns[:-1], other), markers, generation_prompt=True, thinking=thinking
            )
        yield self.ids(turns, generation_prompt=False, thinking=thinking)

    def thought(self, turn: Turn) -> bool:
        """Whether the model was thinking when it wrote `turn`."""
        return bool(turn.reasoning) or self._tags.close in turn.token_ids

    def written_ids(self, turn: Turn) -> list[int]:
        """All that the model wrote in an unfinished answer, without what ended it.

        Where its ids are not known its texts are tokenised again.
        """
        if turn.token_ids:
            return self._without_stop(turn.token_ids)
        answer = self._tokenizer.encode_literally(turn.text)
        if not turn.reasoning:
            return answer
        reasoning = self._tokenizer.encode_literally(turn.reasoning)
        if not answer or self._tags.close is None:
            return reasoning
        line_end, gap = map(self._tokenizer.encode_literally, ("\n", "\n\n"))
        return [*reasoning, *line_end, self._tags.close, *gap, *answer]

    def _ids(
        self,
        turns: Sequence[Turn],
        markers: _Markers,
        *,
        generation_prompt: bool,
        thinking: bool,
    ) -> list[int]:
        messages = [self._message(turn, markers) for turn in turns]
        text = self._tokenizer.render(
            messages, generation_prompt=generation_prompt, thinking=thinking
        )
        return markers.ids(text, self._tokenizer.encode)

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
        if turn.role == "assistant" and (ids := self._answer_ids(turn)):
            return markers.add(ids)
        if self._tokenizer.spells_special(turn.text):
            return markers.add(self._tokenizer.encode_literally(turn.text.strip()))
        return turn.text

    def _answer_ids(self, turn: Turn) -> list[int]:
        """The model's own ids of the visible answer; none where they do not spell it."""
        ids = self._without_stop(turn.token_ids)
        if self._tags.close in ids:
            ids = ids[ids.index(self._tags.close) + 1 :]
        while ids and not whole_characters(self._tokenizer, ids[:1]).strip("\n"):
            del ids[0]
        spelled = whole_characters(self._tokenizer, ids)
        return ids if spelled.strip("\n") == turn.text.strip("\n") else []

    def _without_stop(self, ids: Sequence[int]) -> list[int]:
        return [*ids[:-1]] if ids and ids[-1] in self._stop_ids else [*ids]


class _Markers:
    """Texts that no one writes, each standing for ids."""

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._ids: list[list[int]] = []

    def add(self, ids: list[int]) -> str:
        self._ids.append(ids)
        return f"\ue000{self._name}:{len(self._ids) - 1}\ue001"

    def ids(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """The ids of `text`, those of its markers in their places."""
        parts = re.split(f"\ue000{self._name}:([0-9]+)\ue001", text)
        found: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                found += self._ids[int(part)]
            elif part:
                found += encode(part)
        return found
