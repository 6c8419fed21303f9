"""A run that fails: the sequence stays, and the next call works."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.errors import RuntimeFailure
from tests.ascend.decoding import IDS, Open, read
from tests.doubles.mindspore_lite.npu import Npu


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
    npu.limit, npu.fail_predicts = npu.used + (1 << 20), 1
    with pytest.raises(RuntimeFailure) as kept:
        decoder.step(1)

    np.testing.assert_array_equal(decoder.step(1), other.step(1))
    assert "Execute graph failed" in str(kept.value)
