from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.slots import (
    BatchError,
    CapacityMismatchError,
    MaskGapError,
    MaskValueError,
    NoSlotError,
    PrefixMask,
    PromptTooLongError,
    check_capacities,
    check_prompt,
    prefix_length,
)
from q35chat.errors import Q35Error

REFUSALS = (
    BatchError,
    CapacityMismatchError,
    MaskGapError,
    MaskValueError,
    NoSlotError,
    PromptTooLongError,
)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_every_refusal_is_a_value_error_for_the_user(refusal: type[Exception]) -> None:
    assert issubclass(refusal, ValueError)
    assert issubclass(refusal, Q35Error)


def ones(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.ones(shape, np.int32)


def test_a_valid_prompt_may_fill_every_slot() -> None:
    assert check_prompt(ones(1, 5), ones(1, 5), used=3, capacity=8) == 5


def test_right_padding_is_not_counted() -> None:
    assert check_prompt(ones(1, 4), np.array([[1, 1, 0, 0]]), used=0, capacity=2) == 2


def test_two_sequences_are_refused() -> None:
    with pytest.raises(BatchError, match="one sequence"):
        check_prompt(ones(2, 3), ones(2, 3), used=0, capacity=8)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(BatchError, match=r"\(1, 3\) with attention_mask \(1, 4\)"):
        check_prompt(ones(1, 3), ones(1, 4), used=0, capacity=8)


def test_a_prompt_over_the_capacity_is_refused_with_numbers() -> None:
    with pytest.raises(PromptTooLongError, match="prompt needs 9 slots, capacity 8"):
        check_prompt(ones(1, 6), ones(1, 6), used=3, capacity=8)


def test_two_graphs_of_different_capacity_are_refused() -> None:
    with pytest.raises(CapacityMismatchError, match="prefill graph has 16 slots, decode graph 8"):
        check_capacities(16, 8)


def test_mask_values_other_than_zero_and_one_are_refused() -> None:
    with pytest.raises(MaskValueError, match="holds 2"):
        prefix_length(np.array([[1, 2, 0]]))


@pytest.mark.parametrize("mask", [[1, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 0]])
def test_a_mask_with_a_gap_is_refused(mask: list[int]) -> None:
    with pytest.raises(MaskGapError, match="gap"):
        prefix_length(np.array([mask]))


@pytest.mark.parametrize("count", range(5))
def test_the_sum_of_a_prefix_mask_is_the_next_position(count: int) -> None:
    assert prefix_length(np.array([[1] * count + [0] * (4 - count)])) == count


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
    assert prefix_length(mask.array) == mask.count == 1
