from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.slots import (
    CapacityMismatchError,
    NoSlotError,
    PrefixMask,
    PromptTooLongError,
    check_capacities,
    check_prompt,
)
from q35chat.errors import Q35Error

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
