from __future__ import annotations

from itertools import cycle, islice

import pytest

from q35chat.chat.loops import LONGEST_PERIOD, REPEATS, SHORTEST_LOOP, LoopGuard


def first_loop(tokens: list[int]) -> int | None:
    guard = LoopGuard()
    return next((place for place, token in enumerate(tokens, 1) if guard.push(token)), None)


@pytest.mark.parametrize("period", [1, 2, 5, 16, 17, LONGEST_PERIOD])
def test_a_loop_is_seen_when_it_is_long_enough(period: int) -> None:
    tokens = [*range(1000, 1100), *islice(cycle(range(period)), 2000)]

    assert first_loop(tokens) == 100 + max(SHORTEST_LOOP, REPEATS * period)


def test_a_period_over_the_longest_is_no_loop() -> None:
    assert first_loop([*islice(cycle(range(LONGEST_PERIOD + 1)), 2000)]) is None


def test_a_text_that_changes_is_no_loop() -> None:
    assert first_loop([token for line in range(300) for token in (1, 2, 3, line)]) is None


def test_a_reset_forgets() -> None:
    guard = LoopGuard()
    for _ in range(SHORTEST_LOOP - 1):
        assert not guard.push(1)
    guard.reset()

    assert not guard.push(1)
