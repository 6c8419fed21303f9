"""What the engine refuses over 310P graphs, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from q35chat.ascend.decoder import GearedDecoder
from q35chat.engine.decoder import extend
from q35chat.engine.slots import (
    CapacityMismatchError,
    ImageRowsError,
    NoSlotError,
    PromptTooLongError,
)
from q35chat.errors import BundleError, RuntimeFailure
from tests.ascend.conftest import Export
from tests.ascend.decoding import IDS, SHAPE, Open, by_hand, greedy, read
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.ascend import AscendChat


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
