"""The largest of each block of logits: always those of the logits that are read."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.contract import read_chunk_contract, read_contract
from q35chat.engine.decoder import Decoder
from q35chat.engine.session import Array
from q35chat.errors import BundleError
from tests.doubles.numpy_session import NumpySession

BLOCKS = 6


def session(blocks: int = BLOCKS) -> NumpySession:
    return NumpySession(capacity=40, vocab=24, counts=True, blocks=blocks)


def read(engine: Decoder, *ids: int) -> None:
    start = engine.rope_position
    engine.extend(np.array(ids), np.tile(np.arange(start, start + len(ids)), (3, 1)))


def assert_of_these_logits(engine: Decoder) -> Array:
    maxima = engine.maxima()
    assert maxima is not None
    np.testing.assert_array_equal(maxima, engine.logits().reshape(BLOCKS, -1).max(axis=1))
    return maxima.copy()


def test_maxima_follow_the_logits_through_chunks_steps_and_tries() -> None:
    engine = Decoder(session(), chunk=4)
    read(engine, 7, 1, 2, 9, 11, 3)
    found = [assert_of_these_logits(engine)]
    engine.step(8)
    found.append(assert_of_these_logits(engine))
    engine.try_ahead((4, 8, 15))
    for _ in range(2):
        engine.accept()
        found.append(assert_of_these_logits(engine))
    engine.step(20)  # reads the accepted ones again
    found.append(assert_of_these_logits(engine))
    read(engine, 5, 6)
    found.append(assert_of_these_logits(engine))

    assert len({maxima.tobytes() for maxima in found}) == len(found)


def test_a_graph_that_does_not_tell_them_has_none() -> None:
    engine = Decoder(session(0))
    read(engine, 7, 1, 2)

    assert engine.maxima() is None


@pytest.mark.parametrize("blocks", [5, 9, 48])
def test_blocks_of_different_sizes_are_refused(blocks: int) -> None:
    with pytest.raises(BundleError, match="does not divide 24 logits into blocks: export"):
        read_contract(session(blocks))


def test_a_graph_for_prompts_that_tells_others_is_refused() -> None:
    with pytest.raises(BundleError, match="different logits: export them again"):
        read_chunk_contract(session(0), read_contract(session()))
