from __future__ import annotations

from itertools import accumulate, pairwise

import pytest

from q35chat.ascend.gears import (
    Costs,
    Gear,
    Loads,
    PrefillAbility,
    PromptGearError,
    PromptLayout,
    Route,
    Stretch,
    plan,
)

GEARS = (Gear(32, 16), Gear(32, 64), Gear(512, 16), Gear(512, 64))


def prompt(total: int, images: tuple[int, ...] = (), used: int = 0) -> PromptLayout:
    marks = [place in images for place in range(total)]
    return PromptLayout([0, *accumulate(map(int, marks))], used)


def measured(**times: float) -> Costs:
    costs = Costs()
    for name, time in times.items():
        for spent in (1e6, time):
            costs.note(None if name == "step" else Gear(int(name[1:]), 16), spent)
    return costs


def route(
    what: PromptLayout,
    *,
    gears: tuple[Gear, ...] = GEARS,
    stateful: bool = True,
    costs: Costs | None = None,
    loads: Loads | None = None,
) -> Route:
    return plan(what, PrefillAbility(gears, stateful, True), costs or Costs(), loads or Loads())


def test_a_short_prompt_goes_into_the_narrowest_gear() -> None:
    assert route(prompt(20)).stretches == (Stretch(0, 20, Gear(32, 16)),)


def test_one_more_token_than_a_gear_is_stepped() -> None:
    assert route(prompt(33)).stretches == (Stretch(0, 32, Gear(32, 16)), Stretch(32, 33, None))


def test_measured_costs_decide() -> None:
    slow_steps = measured(g32=10, g512=15, step=1000)

    assert route(prompt(33), costs=slow_steps).stretches == (Stretch(0, 33, Gear(512, 16)),)
    assert route(prompt(33), costs=measured(g32=10, g512=500, step=1000)).stretches == (
        Stretch(0, 32, Gear(32, 16)),
        Stretch(32, 33, Gear(32, 16)),
    )


def test_the_first_call_of_a_kind_does_not_count() -> None:
    costs, fresh = Costs(), Costs()
    costs.note(Gear(32, 16), 1e6)

    assert costs.of(Gear(32, 16)) == fresh.of(Gear(32, 16))
    costs.note(Gear(32, 16), 7)
    assert costs.of(Gear(32, 16)) == 7


def test_what_was_not_measured_is_scaled_from_what_was() -> None:
    costs = measured(g32=1.6)

    assert costs.of(Gear(512, 16)) == pytest.approx(6.4, rel=1e-3)
    assert costs.of(None) == pytest.approx(0.85, rel=1e-3)


def test_a_prompt_longer_than_the_largest_gear_goes_in_pieces() -> None:
    pieces = route(prompt(1200)).stretches

    assert [piece.end for piece in pieces][:2] == [512, 1024]
    assert pieces[-1].end == 1200
    assert all(a.end == b.start for a, b in pairwise(pieces))


def test_picture_tokens_choose_a_gear_with_room_for_them() -> None:
    assert route(prompt(30, tuple(range(4, 24)))).stretches == (Stretch(0, 30, Gear(32, 64)),)
    pieces = route(prompt(200, tuple(range(10, 150)))).stretches
    taken = [(piece, len([i for i in range(10, 150) if piece.start <= i < piece.end]))
             for piece in pieces]  # fmt: skip
    assert all(piece.gear and count <= piece.gear.image_rows for piece, count in taken if count)
    assert pieces[-1].end == 200


def test_a_stateless_prefill_runs_once_and_the_rest_is_stepped() -> None:
    pieces = route(prompt(34), gears=(Gear(32, 1),), stateful=False).stretches

    assert pieces == (Stretch(0, 32, Gear(32, 1)), Stretch(32, 33, None), Stretch(33, 34, None))


def test_with_a_stateless_prefill_the_cheaper_of_reading_again_and_stepping_is_taken() -> None:
    few = route(prompt(102, used=100), stateful=False)
    many = route(prompt(140, used=100), stateful=False)

    assert (few.restart, len(few.stretches)) == (False, 2)
    assert (many.restart, many.stretches) == (True, (Stretch(0, 140, Gear(512, 16)),))


def test_loading_the_prefill_counts() -> None:
    loads = Loads("decode", prefill_ms=9000, decode_ms=5000)

    assert len(route(prompt(40, used=20), loads=loads).stretches) == 20
    assert route(prompt(40, used=20)).stretches == (Stretch(20, 40, Gear(32, 16)),)
    assert route(prompt(400, used=20), loads=loads).stretches == (Stretch(20, 400, Gear(512, 16)),)


def test_bringing_decode_back_counts() -> None:
    assert route(prompt(20), loads=Loads("prefill", 9000, 5000)).cost_ms == pytest.approx(5160, 1)


def test_nothing_steps_over_a_picture() -> None:
    with pytest.raises(PromptGearError, match=r"40 tokens, 1 of pictures; the prefill graph takes"):
        route(prompt(40, (35,)), gears=(Gear(32, 16),), stateful=False)


def test_a_growing_cache_cannot_begin_with_a_step() -> None:
    only = PrefillAbility((Gear(32, 1),), False, False)

    assert plan(prompt(1), only, Costs(), Loads()).stretches == (Stretch(0, 1, Gear(32, 1)),)


def test_a_prefill_that_knows_no_padding_takes_its_exact_lengths() -> None:
    exact = PrefillAbility((Gear(8, 1), Gear(32, 1)), False, True, exact=True)

    pieces = plan(prompt(34), exact, Costs(), Loads()).stretches
    assert [piece.gear for piece in pieces] == [Gear(32, 1), None, None]
    assert [p.gear for p in plan(prompt(3), exact, Costs(), Loads()).stretches] == [None] * 3
    with pytest.raises(PromptGearError, match="prompt has 3 tokens, 0 of pictures"):
        plan(prompt(3), PrefillAbility((Gear(8, 1),), False, False, exact=True), Costs(), Loads())


def test_two_thousand_tokens_are_planned_whole() -> None:
    found = route(
        prompt(2048), gears=tuple(Gear(t, m) for t in (32, 512, 1024, 2048) for m in (16, 64))
    )

    assert found.stretches == (Stretch(0, 2048, Gear(2048, 16)),)


BOTH = Route((Stretch(0, 32, Gear(32, 0)), Stretch(32, 33, None)), restart=False, cost_ms=210.0)
STEPS = Route((Stretch(0, 1, None),), restart=False, cost_ms=85.0)


def test_a_route_names_its_gears_and_steps() -> None:
    wanted = "33 tokens: prefill 32, then decode 1, about 210 ms"
    assert BOTH.text(33, Loads("decode")) == wanted


def test_a_route_names_the_graphs_that_have_to_be_loaded_on_the_way() -> None:
    swapping = Loads("decode", prefill_ms=900.0, decode_ms=700.0)
    assert "decode 1, loading prefill and decode, about" in BOTH.text(33, swapping)
    assert "loading" not in STEPS.text(1, swapping)
    elsewhere = Loads("prefill", prefill_ms=900.0, decode_ms=700.0)
    assert "decode 1, loading decode, about" in STEPS.text(1, elsewhere)
