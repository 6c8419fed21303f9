"""A drafter that knows what will be said, and is wrong now and then."""

from __future__ import annotations

import random
from collections.abc import Sequence


class Guesses:
    """Drafts of `said`; each of its tokens is wrong with the chance `wrong`."""

    strength = 8
    milliseconds = 0.0

    def __init__(self, said: Sequence[int], wrong: float, seed: int = 5) -> None:
        chance = random.Random(seed)
        self._said = said
        self._guessed = [abs(token - 1) if chance.random() < wrong else token for token in said]
        self._place = 0

    @property
    def next(self) -> int | None:
        return next(iter(self._guessed[self._place : self._place + 1]), None)

    @property
    def ready(self) -> bool:
        return self.next is not None

    def push(self, token: int) -> None:
        assert token == self._said[self._place]
        self._place += 1

    def draft(self, most: int) -> list[int]:
        return self._guessed[self._place : self._place + most]
