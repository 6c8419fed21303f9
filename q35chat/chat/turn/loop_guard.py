"""Notices that a model goes round in circles: the same tokens again and again, to the letter.

Knows token ids only. What is done about it, ending the reasoning or the turn, is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable

NGRAM = 8
ROUNDS = 6
LEAST_TOKENS = 128


class LoopGuard:
    """Feed it every sampled token of a passage; it says when the passage only repeats itself.

    A loop is `rounds` equal rounds in a row, of any length, that are `least_tokens` tokens or
    more together. One dictionary entry and one comparison a token, however long a round is.
    """

    def __init__(
        self, ngram: int = NGRAM, rounds: int = ROUNDS, least_tokens: int = LEAST_TOKENS
    ) -> None:
        self._ngram = ngram
        self._rounds = rounds
        self._least_tokens = least_tokens
        self.reset()

    def reset(self) -> None:
        """Begin a new passage."""
        self._recent: tuple[int, ...] = ()
        self._last_seen: dict[tuple[int, ...], int] = {}
        self._count = 0
        self._period = 0
        self._repeated = 0

    def push(self, token: int) -> bool:
        """Add a token; True while the end of the passage is a loop."""
        self._count += 1
        self._recent = (*self._recent[-self._ngram + 1 :], token)
        period = self._count - self._last_seen.get(self._recent, self._count)
        self._last_seen[self._recent] = self._count
        if period == 0 or len(self._recent) < self._ngram:
            self._period = self._repeated = 0
        elif period == self._period:
            self._repeated += 1
        else:
            self._period, self._repeated = period, self._ngram
        return self.looping

    def push_all(self, tokens: Iterable[int]) -> bool:
        """Add what was said before, when an answer goes on."""
        for token in tokens:
            self.push(token)
        return self.looping

    @property
    def looping(self) -> bool:
        """Whether the end of the passage is a loop."""
        needed = max(self._period * (self._rounds - 1), self._least_tokens - self._period)
        return self._period > 0 and self._repeated >= needed

    @property
    def period(self) -> int:
        """Tokens in a round; 0 when nothing repeats."""
        return self._period
