"""Slots, tokens with their pictures, and the maxima of logits."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.contract import read_contract
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from q35chat.engine.slots import (
    CapacityMismatchError,
    NoSlotError,
    PrefixMask,
    PromptTooLongError,
    check_capacities,
    check_prompt,
)
from q35chat.engine.tokens import Tokens
from q35chat.errors import BundleError, Q35Error
from tests.doubles.numpy_session import NumpySession

REFUSALS = (
    CapacityMismatchError,
    NoSlotError,
    PromptTooLongError,
)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_every_refusal_is_a_value_error_for_the_user(refusal: type[Exception]) -> None:
    assert issubclass(refusal, ValueError)
    assert issubclass(refusal, Q35Error)


def test_a_valid_prompt_may_fill_every_slot() -> None:
    check_prompt(5, used=3, capacity=8)


def test_a_prompt_over_the_capacity_is_refused_with_numbers() -> None:
    with pytest.raises(PromptTooLongError, match="prompt needs 9 slots, capacity 8"):
        check_prompt(6, used=3, capacity=8)


def test_two_graphs_of_different_capacity_are_refused() -> None:
    with pytest.raises(CapacityMismatchError, match="prefill graph has 16 slots, decode graph 8"):
        check_capacities(16, 8)


def test_the_last_slot_can_be_lit_and_no_more() -> None:
    mask = PrefixMask(4, np.dtype(np.int32))
    mask.advance(3)
    mask.advance(1)

    with pytest.raises(NoSlotError, match="all 4 slots are used"):
        mask.advance(1)
    assert mask.array.tolist() == [[1, 1, 1, 1]]


def test_rewinding_darkens_the_slots_after_it() -> None:
    mask = PrefixMask(4, np.dtype(np.int64))
    mask.advance(4)
    mask.rewind(1)

    assert mask.array.tolist() == [[1, 0, 0, 0]]
    assert mask.count == 1


def tokens(*ids: int, images: tuple[int, ...] = (), first: int = 0) -> Tokens:
    count = len(ids)
    is_image = np.isin(np.arange(count), images)
    rows = np.arange(len(images) * 2, dtype=np.float32).reshape(-1, 2) if images else None
    positions = np.tile(np.arange(first, first + count), (3, 1))
    return Tokens(np.array(ids), positions, -np.array(ids), is_image, rows)


def test_a_part_has_the_rows_of_its_own_pictures() -> None:
    whole = tokens(4, 5, 5, 6, 5, images=(1, 2, 4))
    part = whole.part(2, 5)

    assert whole.image_ends == [0, 0, 1, 2, 2, 3]
    assert (part.ids.tolist(), part.keys.tolist()) == ([5, 6, 5], [-5, -6, -5])
    assert part.positions[0].tolist() == [2, 3, 4]
    assert part.rows is not None
    assert part.rows.tolist() == [[2, 3], [4, 5]]
    assert whole.part(3, 4).rows is None


def test_tokens_are_put_behind_one_another() -> None:
    both = tokens(4, 5, images=(1,)).then(tokens(6, first=2)).then(tokens(5, images=(0,), first=3))

    assert both.ids.tolist() == [4, 5, 6, 5]
    assert both.rows is not None
    assert len(both.rows) == 2
    assert tokens(1).then(tokens(2)).rows is None


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
