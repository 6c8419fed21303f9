"""The largest of each block of logits: always those of the logits that are read."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.contract import read_contract
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from q35chat.errors import BundleError
from tests.doubles.numpy_session import NumpySession

BLOCKS = 6


def session(blocks: int = BLOCKS) -> NumpySession:
    return NumpySession(capacity=40, vocab=24, counts=True, blocks=blocks)


def read(engine: OneGraphDecoder, *ids: int) -> None:
    start = engine.rope_position
    extend(engine, np.array(ids), np.tile(np.arange(start, start + len(ids)), (3, 1)))


def assert_of_these_logits(engine: OneGraphDecoder) -> Array:
    maxima = engine.maxima()
    assert maxima is not None
    np.testing.assert_array_equal(maxima, engine.logits().reshape(BLOCKS, -1).max(axis=1))
    return maxima.copy()


def test_maxima_follow_the_logits_through_chunks_steps_and_tries() -> None:
    engine = OneGraphDecoder(session(), chunk=4)
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
    engine = OneGraphDecoder(session(0))
    read(engine, 7, 1, 2)

    assert engine.maxima() is None


@pytest.mark.parametrize("blocks", [5, 9, 48])
def test_blocks_of_different_sizes_are_refused(blocks: int) -> None:
    with pytest.raises(BundleError, match="does not divide 24 logits into blocks: export"):
        read_contract(session(blocks))
