"""A cache that grows by one slot a step, through the stand-in."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.ascend.options import NpuOptions
from tests.ascend.conftest import Export
from tests.ascend.decoding import HOST, IDS, Open, by_hand, greedy, read
from tests.doubles.mindspore_lite.npu import Npu


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
