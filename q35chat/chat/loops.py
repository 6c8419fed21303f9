"""Notices that a model says the same thing over and over."""

from __future__ import annotations

from collections import deque

LONGEST_PERIOD = 64
REPEATS = 8
SHORTEST_LOOP = 128


class LoopGuard:
    """Watches tokens for a loop: at least `REPEATS` equal rounds and `SHORTEST_LOOP` tokens."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=LONGEST_PERIOD)
        self._matched = [0] * (LONGEST_PERIOD + 1)

    def push(self, token: int) -> bool:
        """Whether `token` closes a loop."""
        looped = False
        for period, earlier in enumerate(reversed(self._recent), start=1):
            length = self._matched[period] + 1 if earlier == token else 0
            self._matched[period] = length
            looped = looped or length + period >= max(SHORTEST_LOOP, REPEATS * period)
        self._recent.append(token)
        return looped

    def reset(self) -> None:
        """Forget what was seen."""
        self._recent.clear()
        self._matched = [0] * (LONGEST_PERIOD + 1)
