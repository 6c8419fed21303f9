"""Times of single tokens where one run computed several. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise


def shared(times: Sequence[float], predict_ms: Sequence[float]) -> tuple[float, ...]:
    """`times` of tokens, each token with an equal share of the run that it came from.

    A token whose time inside the runtime is 0 came from the same run as the one before it. The
    sum stays what it was.
    """
    found: list[float] = []
    for begin, end in _runs(predict_ms):
        found += [sum(times[begin:end]) / (end - begin)] * (end - begin)
    return tuple(found)


def _runs(predict_ms: Sequence[float]) -> Iterator[tuple[int, int]]:
    begins = [place for place, time in enumerate(predict_ms) if time > 0 or place == 0]
    yield from pairwise([*begins, len(predict_ms)])
