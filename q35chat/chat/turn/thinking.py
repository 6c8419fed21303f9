"""Which tokens are reasoning and which are the answer, told by the ids of the think tags.

Knows ids only; text is made elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from q35chat.chat.events import Kind
from q35chat.chat.prompt.tokenizer import ChatTokenizer

Mark = Literal["open", "close", "text"]


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """Ids of `<think>` and `</think>`; None in a vocabulary without them."""

    open: int | None
    close: int | None

    @classmethod
    def of(cls, tokenizer: ChatTokenizer) -> ThinkTags:
        """The tags of a vocabulary."""
        return cls(tokenizer.id_of("<think>"), tokenizer.id_of("</think>"))

    def left_open(self, ids: Sequence[int]) -> bool:
        """Whether `ids`, the end of a prompt, open a thought and do not close it."""
        for token in reversed(ids):
            if token == self.close:
                return False
            if token == self.open:
                return True
        return False


class ThinkParser:
    """Follows one answer, from the end of its prompt on."""

    def __init__(self, tags: ThinkTags, *, opened: bool) -> None:
        self._tags = tags
        self._first = not opened
        self.kind: Kind = "reasoning" if opened else "answer"

    def push(self, token: int) -> Mark:
        """What `token` is; `kind` then tells where the tokens after it belong.

        A thought opens only at the very start and closes once: later tags are plain text.
        """
        first, self._first = self._first, False
        if first and token == self._tags.open:
            self.kind = "reasoning"
            return "open"
        if self.kind == "reasoning" and token == self._tags.close:
            self.kind = "answer"
            return "close"
        return "text"
