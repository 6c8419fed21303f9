from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from q35chat.chat.turn.limits import LEAST_TOKENS, ROUNDS, LoopGuard


def tokens_until_loop(guard: LoopGuard, tokens: list[int]) -> int | None:
    return next((place for place, token in enumerate(tokens, 1) if guard.push(token)), None)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300))
def test_a_round_of_any_length_is_a_loop_after_enough_rounds(period: int) -> None:
    before = list(range(1000, 1100))
    rounds = list(itertools.islice(itertools.cycle(range(period)), period * (ROUNDS + 3) + 200))
    found = tokens_until_loop(LoopGuard(), before + rounds)
    assert found is not None
    assert found - len(before) == max(period * ROUNDS, LEAST_TOKENS)


def test_text_without_repetition_is_no_loop() -> None:
    choose = random.Random(0)
    tokens = [choose.randrange(500) for _ in range(5000)]
    assert tokens_until_loop(LoopGuard(), tokens) is None


def test_counting_is_no_loop() -> None:
    counting = [part for number in range(2000) for part in (10_000 + number, 1, 2)]
    assert tokens_until_loop(LoopGuard(), counting) is None


def test_a_refrain_between_different_verses_is_no_loop() -> None:
    refrain = list(range(30))
    song = [
        token for verse in range(50) for token in (*range(1000 * verse, 1000 * verse + 9), *refrain)
    ]
    assert tokens_until_loop(LoopGuard(), song[9:]) is None


def test_rounds_that_differ_by_one_token_begin_anew() -> None:
    almost = [token for number in range(20) for token in (*range(1, 60), 1000 + number)]
    assert tokens_until_loop(LoopGuard(), almost) is None


def test_one_round_too_few_is_no_loop() -> None:
    assert not LoopGuard().push_all(list(range(40)) * (ROUNDS - 1))
    assert not LoopGuard().push_all(list(range(40)) * ROUNDS + [999])


def test_reset_forgets() -> None:
    guard = LoopGuard()
    assert guard.push_all([5] * 200)
    guard.reset()
    assert not guard.looping
    assert not guard.push_all([5] * (LEAST_TOKENS - 1))
    assert guard.push(5)
