"""Where states live while the stand-in runs: on the device, and what crosses to the host."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.ascend.options import NpuOptions
from tests.ascend.conftest import Export
from tests.ascend.decoding import HOST, IDS, Open, by_hand, greedy, read
from tests.doubles.mindspore_lite.npu import Npu


@pytest.mark.parametrize("device", [NpuOptions(), HOST])
def test_tokens_are_those_of_the_graphs_fed_by_hand(
    exported: Export, graphs: Open, npu: Npu, device: NpuOptions
) -> None:
    decoder = graphs(device=device).decoder()

    assert greedy(decoder, read(decoder, IDS), 20) == by_hand(exported, IDS, 20)
    assert npu.aliased == 0


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


def test_two_engines_after_one_another_leave_nothing_behind(graphs: Open, npu: Npu) -> None:
    before, used = npu.used, []
    first = graphs().decoder()
    wanted = read(first, IDS)
    snapshot = first.snapshot()
    first.close()
    used.append(npu.used)
    second = graphs().decoder()
    np.testing.assert_array_equal(read(second, IDS), wanted)
    second.close()
    used.append(npu.used)

    assert (used, npu.dangling) == ([before] * 2, 0)
    assert (first.used, second.used, len(snapshot.keys)) == (len(IDS),) * 3
