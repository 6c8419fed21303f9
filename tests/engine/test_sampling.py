from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.values import SamplingSettings
from q35chat.engine.sampling import (
    Sampler,
    contenders,
    draw,
    min_p,
    penalise_presence,
    penalise_repetition,
    top_k,
    top_p,
)
from q35chat.engine.session import Array
from q35chat.errors import RuntimeFailure

VOCAB = 248_320


def logits(*values: float) -> Array:
    return np.array(values, np.float32)


def of_probabilities(*values: float) -> Array:
    return np.log(np.array(values, np.float32))


def wide(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 4, VOCAB).astype(np.float32)


def test_repetition_divides_positive_and_multiplies_negative_logits() -> None:
    assert penalise_repetition(logits(4, -4, 2, 0), [0, 1, 3], 2.0).tolist() == [2, -8, 2, 0]


def test_presence_subtracts_once() -> None:
    assert penalise_presence(logits(4, -4, 2), [0, 1], 1.5).tolist() == [2.5, -5.5, 2]


def test_penalties_leave_the_logits_as_they_were() -> None:
    values = logits(1, 2, 3)
    penalise_presence(values, [0], 1.0)
    penalise_repetition(values, [0], 2.0)

    assert values.tolist() == [1, 2, 3]


def test_top_k_keeps_the_largest() -> None:
    assert top_k(logits(1, 5, 3, 4), 2).tolist() == [1, 3]


def test_top_k_keeps_ties_with_the_smallest() -> None:
    assert top_k(logits(3, 5, 3, 1), 2).tolist() == [0, 1, 2]


def test_top_k_over_the_vocabulary_keeps_all() -> None:
    assert top_k(logits(3, 5), 9).tolist() == [0, 1]


@pytest.mark.parametrize("size", [6400, 6411])
@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 3.0])
def test_contenders_hold_all_that_dividing_everything_would_keep(
    size: int, temperature: float
) -> None:
    divisor, joined = np.float32(temperature), 0
    for seed in range(50):
        random = np.random.default_rng(seed)
        scores = random.normal(0, 1, size).astype(np.float32)
        first, second, *better = random.choice(size, 11, replace=False)
        scores[better] += 100
        scores[first] = 10 + random.random()
        scores[second] = np.nextafter(scores[first], np.float32(0))  # division may join the two
        ids = contenders(scores, 10, divisor)
        kept = top_k(scores / divisor, 10)
        joined += len(kept) == 11
        assert ids.tolist() == sorted(ids.tolist())
        assert len(ids) < size / 5
        assert set(kept) <= set(ids)
    assert joined or temperature != 0.3


@pytest.mark.parametrize("k", [1, 20, 1000, 5000])
def test_top_k_of_a_whole_vocabulary_equals_a_full_sort(k: int) -> None:
    scores = wide(k)

    assert top_k(scores, k).tolist() == sorted(np.argsort(-scores)[:k].tolist())


def test_top_p_keeps_the_fewest_that_reach_the_mass_best_first() -> None:
    scores = of_probabilities(0.1, 0.5, 0.15, 0.25)

    assert top_p(scores, 0.7).tolist() == [1, 3]
    assert top_p(scores, 0.8).tolist() == [1, 3, 2]
    assert top_p(scores, 0.01).tolist() == [1]


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("p", [0.3, 0.95])
def test_top_p_of_a_whole_vocabulary_equals_a_full_sort(spread: float, p: float) -> None:
    scores = wide() * np.float32(spread)
    order = np.argsort(-scores, kind="stable")
    chances = np.exp(scores[order].astype(np.float64))
    before = np.cumsum(chances / chances.sum()) - chances / chances.sum()
    expected = order[before < p]

    kept = top_p(scores, p)

    assert abs(len(kept) - len(expected)) <= 1
    shared = min(len(kept), len(expected))
    assert kept[:shared].tolist() == expected[:shared].tolist()


def test_min_p_is_a_share_of_the_best_probability() -> None:
    scores = of_probabilities(0.5, 0.26, 0.24)

    assert min_p(scores, 0.5).tolist() == [0, 1]
    assert min_p(scores, 1.0).tolist() == [0]


@pytest.mark.parametrize(
    ("chance", "place"), [(0.0, 0), (0.24, 0), (0.26, 1), (0.74, 1), (0.76, 2)]
)
def test_a_draw_lays_probabilities_end_to_end(chance: float, place: int) -> None:
    assert draw(np.array([0.25, 0.75, 1.0]), chance) == place


@given(st.integers(0, 2**32), st.floats(0, 1, exclude_max=True))
def test_a_draw_never_falls_on_an_impossible_token(seed: int, chance: float) -> None:
    weights = np.random.default_rng(seed).exponential(size=6)
    weights[::2] = 0

    assert draw(weights.cumsum(), chance) % 2 == 1


def test_temperature_zero_takes_the_best_and_ignores_the_filters() -> None:
    sampler = Sampler(SamplingSettings(temperature=0, top_k=1, top_p=0.1), [], seed=None)

    assert sampler(logits(1, 7, 7, 2)) == 1


def test_greedy_still_penalises() -> None:
    sampler = Sampler(SamplingSettings(temperature=0, repetition_penalty=2.0), [0], seed=None)

    assert [sampler(logits(4, 3, 2.5)) for _ in range(3)] == [1, 2, 0]


def test_presence_counts_generated_tokens_only() -> None:
    sampler = Sampler(SamplingSettings(temperature=0, presence_penalty=2.0), [0], seed=None)

    assert [sampler(logits(4, 3)) for _ in range(2)] == [0, 1]


def test_a_forced_token_counts_as_generated() -> None:
    sampler = Sampler(SamplingSettings(temperature=0, presence_penalty=2.0), [], seed=None)
    sampler.observe(0)

    assert sampler(logits(4, 3)) == 1


def test_filters_work_on_what_the_one_before_left() -> None:
    # Of the top two, 0.6 and 0.2, the first alone holds 0.75: without top-k it would be 0.6.
    rules = SamplingSettings(top_k=2, top_p=0.7)
    scores = of_probabilities(0.6, 0.2, 0.1, 0.1)

    assert {Sampler(rules, [], seed)(scores) for seed in range(50)} == {0}


def test_temperature_comes_before_top_p() -> None:
    # At temperature 0.5 the chances are squared: 0.6 becomes 0.82.
    rules = SamplingSettings(temperature=0.5, top_p=0.8)
    scores = of_probabilities(0.6, 0.25, 0.1, 0.05)

    assert {Sampler(rules, [], seed)(scores) for seed in range(50)} == {0}


def test_draws_follow_the_probabilities() -> None:
    sampler = Sampler(SamplingSettings(), [], seed=5)
    scores = of_probabilities(0.7, 0.2, 0.1)
    counts = np.bincount([sampler(scores) for _ in range(4000)]) / 4000

    np.testing.assert_allclose(counts, [0.7, 0.2, 0.1], atol=0.03)


@pytest.mark.parametrize(
    "rules",
    [
        SamplingSettings(),
        SamplingSettings(top_k=20, top_p=0.95),
        SamplingSettings(temperature=0.6, min_p=0.05),
    ],
)
def test_the_same_seed_gives_the_same_tokens(rules: SamplingSettings) -> None:
    scores = wide() * np.float32(0.3)
    runs = [[sampler(scores) for _ in range(4)] for sampler in _samplers(rules, 11, 11, 12)]

    assert runs[0] == runs[1] != runs[2]


def _samplers(rules: SamplingSettings, *seeds: int) -> list[Sampler]:
    return [Sampler(rules, [], seed) for seed in seeds]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_are_an_error(temperature: float) -> None:
    with pytest.raises(RuntimeFailure, match="NaN"):
        Sampler(SamplingSettings(temperature=temperature), [], 0)(logits(1, float("nan"), 2))


@pytest.mark.parametrize("rules", [{}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.1}])
@pytest.mark.parametrize("temperature", [1e-50, 1e-44, 1e-38, 1e-30])
def test_the_colder_the_more_it_is_greedy(temperature: float, rules: dict[str, Any]) -> None:
    scores = wide()
    settings = SamplingSettings(temperature=temperature, **{"top_p": 1.0, "top_k": 0} | rules)

    assert Sampler(settings, [], 0)(scores) == scores.argmax()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_logit_without_bounds_is_the_likeliest(temperature: float) -> None:
    sampler = Sampler(SamplingSettings(temperature=temperature), [], 0)

    assert sampler(logits(1, float("inf"), 2)) == 1
    with pytest.raises(RuntimeFailure, match="no finite logits"):
        sampler(np.full(3, -np.inf, np.float32))


def test_logits_are_left_as_they_were() -> None:
    scores = wide()
    before = scores.copy()
    Sampler(SamplingSettings(0.7, 20, 0.9, 0.1, 1.5, 1.1), [1, 2], 0)(scores)

    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("place", [0, 3000, 6399, 6410])
def test_nan_anywhere_in_a_whole_vocabulary_is_an_error(place: int) -> None:
    scores = np.random.default_rng(0).normal(0, 1, 6411).astype(np.float32)
    scores[place] = np.nan
    with pytest.raises(RuntimeFailure, match="NaN"):
        Sampler(SamplingSettings(temperature=0.7, top_k=20), [], 0)(scores)


def block_maxima(scores: Array, size: int = 64) -> Array:
    maxima: Array = scores.reshape(-1, size).max(axis=1)
    return maxima


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    "rules",
    [
        {"top_k": 20, "top_p": 0.95},
        {"top_k": 1},
        {"top_k": 5000},
        {"top_p": 0.9},
        {"min_p": 0.1},
        {"top_k": 20, "presence_penalty": 1.5},
        {"top_k": 20, "repetition_penalty": 1.3},
    ],
)
def test_known_maxima_change_no_token(rules: dict[str, Any], temperature: float) -> None:
    settings = SamplingSettings(temperature=temperature, **{"top_p": 1.0, "top_k": 0} | rules)
    plain, told = _samplers(settings, 7, 7)
    for seed in range(20):
        scores = wide(seed)
        assert told(scores, block_maxima(scores)) == plain(scores)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_contenders_of_known_maxima_hold_all_that_dividing_everything_would_keep(
    temperature: float,
) -> None:
    divisor = np.float32(temperature)
    for seed in range(50):
        random = np.random.default_rng(seed)
        scores = random.normal(0, 1, 6400).astype(np.float32)
        first, second, *better = random.choice(6400, 11, replace=False)
        scores[better] += 100
        scores[first] = 10 + random.random()
        scores[second] = np.nextafter(scores[first], np.float32(0))
        ids = contenders(scores, 10, divisor, block_maxima(scores))
        assert ids.tolist() == sorted(ids.tolist())
        assert len(ids) < 6400 / 5
        assert set(top_k(scores / divisor, 10)) <= set(ids)


def test_the_first_of_equal_scores_is_greedys_with_known_maxima_too() -> None:
    scores = np.zeros(640, np.float32)
    scores[[200, 201, 500]] = 3
    sampler = Sampler(SamplingSettings(temperature=0), [], None)

    assert sampler(scores, block_maxima(scores)) == sampler(scores) == 200


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_maxima_that_are_broken_are_an_error(temperature: float) -> None:
    scores = np.random.default_rng(0).normal(0, 1, 6400).astype(np.float32)
    scores[700] = np.nan
    sampler = Sampler(SamplingSettings(temperature=temperature, top_k=20), [], 0)

    with pytest.raises(RuntimeFailure, match="NaN"):
        sampler(scores, np.full(100, np.nan, np.float32))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("count", [1, 20, 90, 6400])
def test_contenders_hold_what_has_no_bounds(value: float, count: int) -> None:
    scores = np.random.default_rng(0).normal(0, 1, 6400).astype(np.float32)
    places = np.random.default_rng(1).choice(6400, count, replace=False)
    scores[places] = value
    for maxima in (None, block_maxima(scores)):
        ids = set(contenders(scores, 20, np.float32(0.7), maxima))
        assert set(top_k(scores, 20)) <= ids
