from __future__ import annotations

from q35chat.ascend.gears import Gear, Loads, Piece, Route
from q35chat.ascend.prompts import _described

BOTH = Route((Piece(0, 32, Gear(32, 0)), Piece(32, 33, None)), restart=False, cost_ms=210.0)
STEPS = Route((Piece(0, 1, None),), restart=False, cost_ms=85.0)


def test_a_route_names_its_gears_and_steps() -> None:
    assert _described(BOTH, 33, Loads("decode")) == (
        "33 tokens: prefill 32, then decode 1, about 210 ms"
    )


def test_a_route_names_the_graphs_that_have_to_be_loaded_on_the_way() -> None:
    swapping = Loads("decode", prefill_ms=900.0, decode_ms=700.0)
    assert "decode 1, loading prefill and decode, about" in _described(BOTH, 33, swapping)
    assert "loading" not in _described(STEPS, 1, swapping)
    assert "decode 1, loading decode, about" in _described(
        STEPS, 1, Loads("prefill", prefill_ms=900.0, decode_ms=700.0)
    )
