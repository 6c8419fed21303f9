"""The engine over 310P graphs, through the stand-in: prompts, states, residency, refusals."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.gears import Costs, Gear, PromptGearError
from q35chat.ascend.options import NpuOptions
from q35chat.ascend.residency import Mode
from q35chat.engine.decoder import extend
from q35chat.engine.slots import (
    CapacityMismatchError,
    ImageRowsError,
    NoSlotError,
    PromptTooLongError,
)
from q35chat.errors import BundleError, RuntimeFailure
from tests.ascend.conftest import Export
from tests.ascend.decoding import GEARS, HOST, IDS, SHAPE, Open, by_hand, greedy, read
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.ascend import AscendChat
from tests.support.lite import GuessedCosts


@pytest.mark.parametrize("count", [1, 8, 11, 33, 41])
def test_any_length_gives_the_logits_of_one_call(
    exported: Export, graphs: Open, count: int
) -> None:
    ids = [(7 * place + 3) % 300 for place in range(count)]
    decoder = graphs().decoder()
    whole = graphs({"gears": (48,)}).decoder()
    logits, wanted = read(decoder, ids), read(whole, ids)

    np.testing.assert_allclose(logits, wanted, atol=0.02)
    assert greedy(decoder, logits, 6) == greedy(whole, wanted, 6)


def test_a_conversation_goes_on_from_its_state(exported: Export, graphs: Open, npu: Npu) -> None:
    decoder, whole = graphs().decoder(), graphs().decoder()
    first = greedy(decoder, read(decoder, IDS), 4)
    logits = read(decoder, [first[-1], 20, 21, 22])
    wanted = read(whole, [*IDS, *first, 20, 21, 22])

    assert decoder.used == whole.used == len(IDS) + 7
    np.testing.assert_allclose(logits, wanted, atol=0.02)


def test_pictures_are_read_whole_and_in_pieces(exported: Export, graphs: Open) -> None:
    config = exported(SHAPE, **GEARS).config
    image = config.image_token_id
    ids = [4, *[image] * 20, 9, 10]
    rows = np.random.default_rng(3).normal(size=(20, config.text.hidden_size)).astype(np.float32)
    pieces = graphs().decoder(image)
    whole = graphs({"image_gears": (32,), "gears": (32,)}).decoder(image)

    np.testing.assert_allclose(read(pieces, ids, rows), read(whole, ids, rows), atol=0.02)
    assert pieces.route != whole.route


def test_a_text_after_a_picture_sees_no_rows_of_it(exported: Export, graphs: Open) -> None:
    config = exported(SHAPE, **GEARS).config
    image, rows = config.image_token_id, np.ones((4, config.text.hidden_size), np.float32)
    decoder, fresh = graphs().decoder(image), graphs().decoder(image)
    read(decoder, [4, *[image] * 4], rows)
    decoder.reset()

    np.testing.assert_array_equal(read(decoder, IDS), read(fresh, IDS))


def test_stopping_between_pieces_leaves_a_state_to_go_on_from(graphs: Open) -> None:
    ids = [(7 * place + 3) % 300 for place in range(40)]
    stopped, whole = graphs().decoder(), graphs().decoder()
    positions = np.tile(np.arange(40), (3, 1))
    done = next(stopped.chunks(np.array(ids), positions))

    assert stopped.keys.tolist() == ids[:done]
    assert 0 < done < 40
    np.testing.assert_allclose(read(stopped, ids[done:]), read(whole, ids), atol=0.02)


@pytest.mark.parametrize("device", [NpuOptions(), HOST])
def test_tokens_are_those_of_the_graphs_fed_by_hand(
    exported: Export, graphs: Open, npu: Npu, device: NpuOptions
) -> None:
    decoder = graphs(device=device).decoder()

    assert greedy(decoder, read(decoder, IDS), 20) == by_hand(exported, IDS, 20)
    assert npu.aliased == 0


@pytest.mark.parametrize("mode", ["both", "swap"])
@pytest.mark.parametrize("manner", ["refuse", "ignore"])
def test_a_build_that_takes_no_outputs_gives_the_same_tokens_and_the_route_says_so(
    exported: Export, graphs: Open, npu: Npu, mode: Mode, manner: Literal["refuse", "ignore"]
) -> None:
    npu.given_outputs = manner
    decoder = graphs(mode=mode).decoder()

    assert greedy(decoder, read(decoder, IDS), 6) == by_hand(exported, IDS, 6)
    assert decoder.route.endswith(" ms; results of prefill and decode through the host")


def test_keeping_states_on_the_device_gives_the_bits_of_the_host_round_trip(graphs: Open) -> None:
    kept, moved = graphs().decoder(), graphs(device=HOST).decoder()
    read(kept, IDS), read(moved, IDS)

    for token in (5, 9, 20):
        np.testing.assert_array_equal(kept.step(token), moved.step(token))
    for name, state in kept.snapshot().states.items():
        np.testing.assert_array_equal(state, moved.snapshot().states[name])


def test_a_step_allocates_nothing_and_moves_only_its_inputs_and_logits(
    graphs: Open, npu: Npu
) -> None:
    decoder = graphs().decoder()
    read(decoder, IDS)
    decoder.step(1)
    before = npu.allocations, npu.uploaded, npu.downloaded, npu.resizes
    decoder.step(2)

    ids, mask, positions = 4, 4 * decoder.capacity, 4 * 4
    assert npu.allocations == before[0]
    assert npu.uploaded - before[1] == ids + mask + positions
    assert npu.downloaded - before[2] == 2 * decoder.vocab_size
    assert npu.resizes == before[3]


def test_a_prefill_moves_no_state(graphs: Open, npu: Npu) -> None:
    decoder = graphs().decoder()
    read(decoder, IDS)
    before = npu.allocations, npu.uploaded, npu.downloaded
    decoder.reset()
    reset = npu.uploaded
    read(decoder, IDS)

    assert npu.allocations == before[0]
    assert npu.uploaded - reset == 16 * (4 + 4 + 16) + 4
    assert npu.downloaded - before[2] == 2 * decoder.vocab_size


def test_going_back_to_a_snapshot_is_exact(graphs: Open) -> None:
    decoder = graphs().decoder()
    read(decoder, IDS)
    snapshot = decoder.snapshot()
    first = [decoder.step(token).copy() for token in (1, 2, 3)]
    decoder.restore(snapshot)

    np.testing.assert_array_equal([decoder.step(token).copy() for token in (1, 2, 3)], first)


def test_more_pictures_than_a_stateless_prefill_takes_are_refused(
    exported: Export, graphs: Open
) -> None:
    image = exported(SHAPE, **GEARS).config.image_token_id
    rows = np.zeros((20, exported(SHAPE, **GEARS).config.text.hidden_size), np.float32)
    decoder = graphs({"stateless_prefill": True}).decoder(image)

    with pytest.raises(PromptGearError, match="prompt has 21 tokens, 20 of pictures"):
        read(decoder, [*[image] * 20, 4], rows)


def test_a_stateless_prefill_reads_the_whole_conversation_again(
    exported: Export, graphs: Open
) -> None:
    decoder = graphs({"stateless_prefill": True}).decoder()
    whole = graphs().decoder()
    first = greedy(decoder, read(decoder, IDS), 3)
    more = [first[-1], *range(20, 30)]
    logits = read(decoder, more)

    assert "from the first token on" in decoder.route
    np.testing.assert_allclose(logits, read(whole, [*IDS, *first[:-1], *more]), atol=0.02)
    assert decoder.keys.tolist() == [*IDS, *first[:-1], *more]


def test_a_stateless_prefill_takes_few_tokens_through_decode(graphs: Open, npu: Npu) -> None:
    decoder = graphs({"stateless_prefill": True}).decoder()
    read(decoder, IDS)
    before = npu.predicts
    read(decoder, [20])

    assert (decoder.route.split(",")[0], npu.predicts - before) == ("1 tokens: decode 1", 1)


def test_a_stateless_prefill_remembers_pictures(exported: Export, graphs: Open) -> None:
    config = exported(SHAPE, **GEARS).config
    image = config.image_token_id
    rows = np.random.default_rng(3).normal(size=(4, config.text.hidden_size)).astype(np.float32)
    decoder = graphs({"stateless_prefill": True}).decoder(image)
    whole = graphs().decoder(image)
    read(decoder, [3, *[image] * 4, 8], rows)
    logits = read(decoder, list(range(20, 32)))

    assert "from the first token on" in decoder.route
    wanted = read(whole, [3, *[image] * 4, 8, *range(20, 32)], rows)
    np.testing.assert_allclose(logits, wanted, atol=0.02)


@pytest.mark.parametrize("device", [NpuOptions(), HOST])
def test_a_growing_cache_gives_the_same_tokens(
    exported: Export, graphs: Open, npu: Npu, device: NpuOptions
) -> None:
    options = {"fused_decode": False, "fused_prefill": False}
    decoder = graphs(options, device=device).decoder()
    tokens = greedy(decoder, read(decoder, IDS), 8)

    assert tokens == by_hand(exported, IDS, 8, **options)
    snapshot = decoder.snapshot()
    again = [decoder.step(4).copy(), decoder.step(5).copy()]
    decoder.restore(snapshot)
    np.testing.assert_array_equal([decoder.step(4).copy(), decoder.step(5).copy()], again)
    assert npu.aliased == 0


def test_a_prefill_whose_kernel_takes_no_state_begins_anew(graphs: Open) -> None:
    decoder, whole = graphs(kernels="fresh-prefill").decoder(), graphs().decoder()
    tokens = read(decoder, IDS)
    np.testing.assert_array_equal(tokens, read(whole, IDS))
    more = list(range(20, 32))
    logits = read(decoder, more)

    assert "from the first token on" in decoder.route
    np.testing.assert_allclose(logits, read(whole, more), atol=0.02)


def test_a_prefill_whose_kernel_takes_no_padding_gets_none(graphs: Open) -> None:
    decoder, whole = graphs(kernels="exact-prefill").decoder(), graphs().decoder()
    logits = read(decoder, IDS)

    assert decoder.route.startswith("11 tokens: prefill 8, then decode 3, about")
    np.testing.assert_allclose(logits, read(whole, IDS), atol=0.02)


def test_a_growing_cache_goes_back_to_another_conversation(graphs: Open) -> None:
    decoder, whole = (graphs({"fused_decode": False}).decoder() for _ in range(2))
    read(decoder, IDS)
    snapshot = decoder.snapshot()
    decoder.reset()
    read(decoder, list(range(40, 55)))
    decoder.restore(snapshot)
    logits = read(decoder, list(range(20, 32)))

    assert "from the first token on" in decoder.route
    np.testing.assert_array_equal(logits, read(whole, [*IDS, *range(20, 32)]))


def test_a_growing_cache_gets_one_fresh_output_a_step(graphs: Open, npu: Npu) -> None:
    decoder = graphs({"fused_decode": False}).decoder()
    read(decoder, IDS)
    decoder.step(1)
    before = npu.allocations
    decoder.step(2)

    assert npu.allocations - before == 2  # the cache and the mask
    decoder.reset()
    read(decoder, IDS)
    assert decoder.used == len(IDS)


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
    monkeypatch.setattr("q35chat.engine.decoder.perf_counter", clock)
    decoder.step(1)

    assert events == ["load", "clock", "clock"]
    assert costs.seen == [Gear(16, 16), None]


def refused(decoder: GearedDecoder, error: type[Exception], match: str, **arguments: Any) -> None:
    given: dict[str, Any] = {
        "ids": np.array(IDS),
        "positions": np.tile(np.arange(len(IDS)), (3, 1)),
        **arguments,
    }
    with pytest.raises(error, match=match):
        extend(decoder, **given)


def test_every_refusal_comes_before_anything_is_uploaded(graphs: Open, npu: Npu) -> None:
    decoder = graphs({"capacity": 17, "gears": (8, 16)}).decoder(image_token_id=5)
    before = npu.uploaded, npu.predicts

    refused(decoder, PromptTooLongError, "needs 18 slots, capacity 17", ids=np.arange(18))
    refused(decoder, ImageRowsError, "1 picture tokens but 0 picture embeddings")
    assert (npu.uploaded, npu.predicts) == before


def test_two_exports_mixed_are_refused_before_anything_is_allocated(graphs: Open, npu: Npu) -> None:
    small, large = graphs({"capacity": 32}), graphs({"capacity": 48})
    prefill, decode = small.session("prefill"), large.session("decode")
    before = npu.allocations

    with pytest.raises(CapacityMismatchError, match="prefill graph has 32 slots, decode graph 48"):
        GearedDecoder(decode, prefill)
    assert npu.allocations == before


def test_a_prefill_in_the_place_of_decode_is_refused(graphs: Open) -> None:
    made = graphs()

    prefill = made.session("prefill")
    with pytest.raises(BundleError, match="expected a text graph, found a prefill graph"):
        GearedDecoder(prefill, prefill)


@pytest.mark.parametrize("capacity", [17, 48])
def test_the_last_slot_is_written_and_the_next_refused(
    exported: Export, graphs: Open, capacity: int
) -> None:
    options = {"capacity": capacity, "gears": (8, 16)}
    decoder = graphs(options).decoder()
    tokens = greedy(decoder, read(decoder, IDS), capacity - len(IDS) + 1)

    assert decoder.used == capacity
    assert tokens == by_hand(exported, IDS, capacity - len(IDS) + 1, **options)
    with pytest.raises(NoSlotError, match=f"all {capacity} slots are used"):
        decoder.step(1)


def test_the_usual_gears_lead_to_the_last_of_2048_slots(exported: Export, graphs: Open) -> None:
    options = {"capacity": 2048, "gears": (32, 512, 1024, 2048), "image_gears": (16, 64, 256)}
    ids = np.random.default_rng(4).integers(0, 360, 2041).tolist()
    decoder, chat = graphs(options).decoder(), AscendChat(exported(SHAPE, **options))
    logits, wanted = read(decoder, ids), chat.prefill(ids)
    for token in (*ids[:7], None):
        np.testing.assert_allclose(logits, wanted, atol=0.05)
        if token is not None:
            logits, wanted = decoder.step(token), chat.step(token)

    assert decoder.used == chat.length == 2048
    with pytest.raises(NoSlotError, match="all 2048 slots are used"):
        decoder.step(1)


def test_a_closed_engine_refuses_to_go_on(graphs: Open) -> None:
    decoder = graphs().decoder()
    read(decoder, IDS)
    decoder.close()

    with pytest.raises(RuntimeFailure, match="the decode graph is closed"):
        decoder.step(1)


def test_an_error_in_the_middle_of_a_generation_harms_nothing(graphs: Open, npu: Npu) -> None:
    decoder, other = graphs().decoder(), graphs().decoder()
    read(decoder, IDS), read(other, IDS)
    decoder.step(1), other.step(1)
    npu.fail_predicts = 1
    with pytest.raises(RuntimeFailure, match="the decode graph failed: Execute graph failed"):
        decoder.step(2)

    assert decoder.used == len(IDS) + 1
    np.testing.assert_array_equal(decoder.step(2), other.step(2))


def test_an_error_while_reading_again_leaves_the_sequence(graphs: Open, npu: Npu) -> None:
    decoder = graphs({"stateless_prefill": True}).decoder()
    read(decoder, IDS)
    npu.fail_predicts = 1
    with pytest.raises(RuntimeFailure):
        read(decoder, list(range(20, 30)))

    assert (decoder.keys.tolist(), decoder.rope_position) == (IDS, len(IDS))
    decoder.step(1)


def test_a_model_that_failed_is_built_again_where_only_one_fits(graphs: Open, npu: Npu) -> None:
    decoder, other = graphs(weights=2 << 20).decoder(), graphs().decoder()
    read(decoder, IDS), read(other, IDS)
    npu.limit, npu.fail_predicts = npu.used + (1 << 20), 2
    with pytest.raises(RuntimeFailure) as kept:
        decoder.step(1)

    np.testing.assert_array_equal(decoder.step(1), other.step(1))
    assert "Execute graph failed" in str(kept.value)
