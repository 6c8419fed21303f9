"""Graphs that do not fit a device together, and what loading one costs."""

from __future__ import annotations

import pytest

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.gears import Costs, Gear
from tests.ascend.conftest import Export
from tests.ascend.decoding import IDS, Open, by_hand, greedy, read
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.lite import GuessedCosts


def test_graphs_that_do_not_fit_together_take_turns_with_the_same_tokens(
    exported: Export, graphs: Open, npu: Npu
) -> None:
    npu.limit = npu.used + (3 << 20)
    made = graphs(mode="auto", weights=2 << 20)
    decoder = made.decoder()
    tokens = greedy(decoder, read(decoder, IDS), 6)

    assert made.residency.swaps
    assert tokens == by_hand(exported, IDS, 6)
    assert npu.used <= npu.limit


def test_when_a_load_costs_more_the_tokens_go_through_decode(graphs: Open, npu: Npu) -> None:
    made = graphs(mode="swap")
    decode, prefill = made.session("decode"), made.session("prefill")
    decoder = GearedDecoder(decode, prefill, costs=GuessedCosts())
    greedy(decoder, read(decoder, IDS), 3)
    builds, prefill.load_ms = npu.builds, 1e6
    read(decoder, [20, 21, 22, 23])

    assert decoder.route.startswith("4 tokens: decode 4, about")
    assert npu.builds == builds


class Recorded(Costs):
    """Tells what was measured."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Gear | None] = []

    def note(self, gear: Gear | None, milliseconds: float) -> None:
        assert milliseconds > 0
        self.seen.append(gear)


def test_loading_a_graph_is_not_counted_as_its_run(
    graphs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, costs, events = graphs(mode="swap"), Recorded(), list[str]()
    decode, prefill = made.session("decode"), made.session("prefill")
    decoder = GearedDecoder(decode, prefill, costs=costs)
    read(decoder, IDS)
    load = decode.load

    def clock() -> float:
        events.append("clock")
        return float(len(events))

    def seen_load() -> None:
        events.append("load")
        load()

    monkeypatch.setattr(decode, "load", seen_load)
    monkeypatch.setattr("q35chat.ascend.decoder.perf_counter", clock)
    decoder.step(1)

    assert events == ["load", "clock", "clock"]
    assert costs.seen == [Gear(16, 16), None]
