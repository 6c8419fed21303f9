"""A prefill that also decodes, in its gear of one token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.gears import Costs, Gear, Loads, PrefillAbility, PromptLayout, plan
from q35chat.ascend.options import NpuOptions
from q35chat.ascend.residency import Mode, decided
from q35chat.ascend.runtime import NpuRuntime
from q35chat.bundle.bundle import Bundle
from q35chat.commands.export import ExportOptions, _with_one_token
from q35chat.engine.slots import NoSlotError
from q35chat.errors import BundleError, RuntimeFailure, UsageError
from tests.ascend.chatting import HELLO, Bundles, OpenChat, ask
from tests.ascend.conftest import Export
from tests.ascend.decoding import HOST, IDS, SHAPE, Open, read
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.ascend import AscendChat
from tests.support.lite import GuessedCosts

ONE: dict[str, Any] = {"capacity": 24, "gears": (1, 8, 16)}


def one_graph(graphs: Open, exported: Export, **arguments: Any) -> GearedDecoder:
    prefill = graphs(ONE, **arguments).session("prefill")
    vocab = exported(SHAPE, **{"image_gears": (4, 16), **ONE}).config.text.vocab_size
    return GearedDecoder(None, prefill, costs=GuessedCosts(), vocab_size=vocab)


@pytest.mark.parametrize("device", [NpuOptions(), HOST])
def test_its_logits_are_those_of_two_graphs_up_to_the_last_slot(
    exported: Export, graphs: Open, npu: Npu, device: NpuOptions
) -> None:
    decoder = one_graph(graphs, exported, device=device)
    chat = AscendChat(exported(SHAPE, **{"image_gears": (4, 16), **ONE}))
    np.testing.assert_allclose(read(decoder, IDS), chat.prefill(IDS), atol=0.02)
    for token in range(decoder.capacity - len(IDS)):
        np.testing.assert_allclose(decoder.step(token), chat.step(token), atol=0.02)

    assert decoder.route.startswith("11 tokens: prefill 16, about")
    assert (npu.builds, npu.aliased) == (1, 0)
    with pytest.raises(NoSlotError, match="all 24 slots are used"):
        decoder.step(1)


def test_going_back_is_exact_and_a_step_allocates_nothing(
    exported: Export, graphs: Open, npu: Npu
) -> None:
    decoder = one_graph(graphs, exported)
    read(decoder, IDS)
    decoder.step(4)
    snapshot, before = decoder.snapshot(), npu.allocations
    first = [decoder.step(token).copy() for token in (1, 2, 3)]
    assert npu.allocations == before
    decoder.restore(snapshot)

    np.testing.assert_array_equal([decoder.step(token).copy() for token in (1, 2, 3)], first)


def test_a_prefill_without_a_gear_of_one_token_does_not_decode(graphs: Open) -> None:
    with pytest.raises(BundleError, match="no gear of one token"):
        GearedDecoder(None, graphs().session("prefill"), vocab_size=10)


def test_its_prompts_are_cut_into_gears_alone() -> None:
    ability = PrefillAbility([Gear(1, 1), Gear(8, 8)], True, decode_first=True, steps=False)
    route = plan(PromptLayout([0] * 11, 0), ability, Costs(), Loads("prefill"))

    assert all(stretch.gear is not None for stretch in route.stretches)


@pytest.mark.parametrize(
    ("mode", "free", "one", "taken"),
    [
        ("auto", 20, True, "auto"),
        ("auto", 5, True, "one"),
        ("auto", 5, False, "swap"),
        ("swap", 5, True, "swap"),
        ("one", 20, True, "one"),
    ],
)
def test_it_is_preferred_where_two_do_not_fit(
    mode: Mode, free: int, one: bool, taken: Mode
) -> None:
    assert decided(mode, 10, free, one=one) == taken


def test_a_chat_over_one_graph_gives_the_tokens_of_two_and_loads_no_decode(
    bundles: Bundles, open_chat: OpenChat, npu: Npu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gears, name = {"gears": (1, 16, 64, 128)}, "demo one graph"
    wanted = ask(open_chat(name, **gears), HELLO)
    npu.reset()
    monkeypatch.setattr("q35chat.ascend.runtime.free_bytes", lambda _: 1000)
    answer = ask(open_chat(name, **gears), HELLO)

    assert answer.token_ids == wanted.token_ids
    assert "decode" not in answer.usage.timings.route
    assert npu.builds == 2  # vision and prefill
    bundle = Bundle.open(bundles(name))
    other = replace(bundle, manifest=replace(bundle.manifest, options={}))
    with pytest.raises(RuntimeFailure, match="has no prefill that decodes: export it with"):
        NpuRuntime(other, NpuOptions(residency="one"))


def test_an_export_adds_the_gear_where_a_prefill_can_decode() -> None:
    assert _with_one_token(ExportOptions(max_seq_len=600), ()) == (1, 32, 512)
    assert _with_one_token(ExportOptions(), (1, 8)) == (1, 8)
    with pytest.raises(UsageError, match="drop it or --stateless-prefill"):
        _with_one_token(ExportOptions(stateless_prefill=True), ())
