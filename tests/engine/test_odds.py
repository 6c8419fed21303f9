from __future__ import annotations

import pytest

from q35chat.engine.speculation import Odds

LENGTHS = (1, 3, 7)


def learnt(extra: float, hits: float, strength: int = 4) -> Odds:
    """After many runs in which a further token costs `extra` of a step, and `hits` of drafts of
    any strength from `strength` on are right."""
    odds = Odds()
    for number in range(400):
        odds.note_run(1, 10.0)
        odds.note_run(4, 10.0 * (1 + 3 * extra))
        right = int((number + 1) * hits) > int(number * hits)
        for place in range(strength, strength + 24, 2):
            odds.note_outcome(place, right=right)
    return odds


def test_right_drafts_on_a_machine_where_they_are_cheap_are_tried_at_length() -> None:
    assert learnt(0.2, 1.0).best(4, LENGTHS, 0) == 7


def test_wrong_drafts_are_not_tried() -> None:
    assert learnt(0.2, 0.0).best(4, LENGTHS, 0) == 0


def test_nothing_is_tried_where_a_token_costs_more_than_a_step() -> None:
    assert learnt(1.1, 1.0).best(4, LENGTHS, 0) == 0


def test_uncertain_drafts_are_shorter() -> None:
    lengths = [learnt(0.2, hits).best(4, LENGTHS, 0) for hits in (0.3, 0.7, 1.0)]

    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_tokens_to_read_again_count_against_a_try() -> None:
    odds = learnt(0.3, 0.7)

    gains = [odds.gain(4, 3, behind) for behind in range(4)]
    assert gains == sorted(gains, reverse=True)


def test_no_length_is_none() -> None:
    assert Odds().best(16, (), 0) == 0


def test_the_gain_is_tokens_saved_less_tokens_computed() -> None:
    odds = learnt(0.25, 1.0)

    assert odds.gain(4, 3, 0) == pytest.approx(3 - 3 * 0.25, abs=0.1)


def test_the_cost_is_measured_against_steps() -> None:
    assert learnt(0.35, 1.0).extra == pytest.approx(0.35, abs=0.01)


def test_one_slow_run_changes_little() -> None:
    odds = learnt(0.3, 1.0)
    before = odds.extra
    odds.note_run(1, 10_000.0)
    odds.note_run(4, 19.0)

    assert odds.extra == pytest.approx(before, abs=0.05)


def test_a_machine_that_was_busy_gets_another_chance() -> None:
    odds = learnt(2.0, 1.0)
    assert odds.best(16, LENGTHS, 0) == 0

    for _ in range(400):
        odds.note_run(1, 10.0)

    assert odds.best(16, LENGTHS, 0) > 0


def test_rates_of_strong_and_weak_drafts_are_learnt_apart() -> None:
    odds = Odds()
    for _ in range(100):
        odds.note_outcome(2, right=False)
        odds.note_outcome(20, right=True)

    assert odds.rate(2) < 0.05
    assert odds.rate(20) > 0.95


def test_a_run_before_the_first_step_teaches_nothing() -> None:
    odds = Odds()
    before = odds.extra
    odds.note_run(4, 100.0)

    assert odds.extra == before


def test_without_a_clock_only_tokens_count() -> None:
    timed, blind = learnt(2.0, 1.0), Odds(timed=False)
    before = blind.extra
    for _ in range(400):
        blind.note_run(1, 10.0)
        blind.note_run(4, 70.0)
        for place in range(4, 28, 2):
            blind.note_outcome(place, right=True)

    assert blind.extra == before
    assert blind.rate(4) == timed.rate(4)
    assert (timed.best(4, LENGTHS, 0), blind.best(4, LENGTHS, 0)) == (0, 7)


def with_price(price: float, hits: float) -> Odds:
    """After many drafts of one token by a head, for `price` of a step, with so many right."""
    odds = Odds(head=True)
    for number in range(400):
        odds.note_run(1, 10.0)
        odds.note_run(2, 10.0 * 1.3)
        odds.note_draft(2, 2 * 10.0 * price)
        for place in (1, 2, 3):
            odds.note_outcome(place, right=int((number + 1) * hits) > int(number * hits))
    return odds


def test_the_price_of_a_draft_is_measured_and_counts_against_it() -> None:
    cheap, dear = with_price(0.1, 1.0), with_price(0.5, 1.0)

    assert cheap.price == pytest.approx(0.1)
    assert dear.price == pytest.approx(0.5)
    assert cheap.gain(1, 2, 0) - dear.gain(1, 2, 0) == pytest.approx(2 * 0.4, abs=0.01)


@pytest.mark.parametrize(
    ("price", "hits", "length"), [(0.1, 1.0, 3), (0.2, 0.75, 1), (0.2, 0.2, 0), (0.9, 1.0, 0)]
)
def test_dear_or_uncertain_drafts_of_a_head_are_shorter(
    price: float, hits: float, length: int
) -> None:
    assert with_price(price, hits).best(1, (1, 2, 3), 0) == length


def test_a_head_that_was_wrong_or_dear_gets_another_chance() -> None:
    odds = with_price(0.9, 0.0)
    assert odds.best(1, (1, 2, 3), 0) == 0

    for _ in range(2_000):
        odds.note_run(1, 10.0)
        odds.note_untried()

    assert odds.best(1, (1, 2, 3), 0) > 0


def test_drafts_that_cost_nothing_are_judged_untried_and_keep_their_rates() -> None:
    odds = learnt(0.3, 0.0)
    before = odds.rate(4)
    for _ in range(500):
        odds.note_untried()

    assert odds.rate(4) == before


def test_without_a_clock_the_price_is_the_first_guess() -> None:
    odds = Odds(timed=False, head=True)
    before = odds.price
    odds.note_run(1, 10.0)
    odds.note_draft(1, 50.0)

    assert odds.price == before > 0
