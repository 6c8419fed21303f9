"""Tells a question that cannot fit from its bytes alone: tokenising a megabyte takes seconds.

No token spells more bytes than the longest one of the vocabulary, so bytes give a lower bound.
"""

from __future__ import annotations

from functools import cached_property

from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.turn.detokenize import piece_bytes
from q35chat.errors import CapacityError

_SHORT = 16  # characters a slot that are left to the exact count
_CHARACTER = 4  # bytes at most


class LeastTokens:
    """Lower bounds for one vocabulary."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer

    def of(self, text: str) -> int:
        """The fewest tokens that `text` can have in a prompt, where its ends are trimmed."""
        data = self._tokenizer.normalised(text.strip()).encode("utf-8", "surrogatepass")
        return -(-len(data) // self.longest)

    def check(self, text: str, capacity: int) -> None:
        """Refuse `text` where even its fewest tokens have no place. Raises CapacityError."""
        if len(text) <= capacity * _SHORT:
            return
        least = self.of(text)
        if least > capacity:
            raise CapacityError(
                f"prompt needs at least {least:,} slots, capacity {capacity:,}: shorten it "
                "or export with a larger --max-seq-len"
            )

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        most = 1
        for piece in sorted(self._tokenizer.pieces(), key=len, reverse=True):
            if len(piece) * _CHARACTER <= most:
                break
            most = max(most, len(piece_bytes(piece)))
        return most
