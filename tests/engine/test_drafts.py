from __future__ import annotations

import pytest

from q35chat.engine.speculation import PromptLookup


def test_nothing_is_drafted_where_nothing_came_before() -> None:
    assert PromptLookup().draft(4) == []
    assert PromptLookup([1, 2, 3, 4]).next is None


def test_what_followed_the_same_tokens_is_drafted() -> None:
    lookup = PromptLookup([5, 6, 7, 8, 9, 1, 5, 6])

    assert lookup.next == 7
    assert lookup.draft(3) == [7, 8, 9]
    assert lookup.strength == 2


def test_one_equal_token_is_not_enough() -> None:
    assert PromptLookup([5, 6, 7, 1, 6]).draft(3) == []


def test_the_latest_place_wins_among_equals() -> None:
    assert PromptLookup([5, 6, 1, 5, 6, 2, 5, 6]).draft(1) == [2]


def test_a_longer_agreement_wins_over_a_later_place() -> None:
    lookup = PromptLookup([1, 2, 5, 6, 3, 9, 9, 5, 6, 4, 1, 2, 5, 6])

    assert lookup.draft(1) == [3]
    assert lookup.strength == 4


def test_a_copy_goes_on_while_it_is_right() -> None:
    lookup = PromptLookup([5, 6, 7, 8, 9, 1, 5, 6])
    lookup.push(7)
    lookup.push(8)

    assert lookup.draft(2) == [9, 1]
    assert lookup.strength == 4


def test_a_copy_that_was_wrong_is_left() -> None:
    lookup = PromptLookup([5, 6, 7, 8, 9, 1, 5, 6])
    lookup.push(4)

    assert lookup.next is None
    assert lookup.strength == 0


def test_a_copy_that_was_wrong_may_go_on_elsewhere() -> None:
    lookup = PromptLookup([8, 4, 3, 5, 6, 7, 8, 9, 1, 5, 6, 7, 8])
    lookup.push(4)

    assert lookup.draft(2) == [3, 5]
    assert lookup.strength == 2


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_a_loop_is_drafted_on_and_on(period: int) -> None:
    round_ = list(range(period))
    lookup = PromptLookup(round_ * 6)

    assert lookup.draft(12) == (round_ * 12)[:12]


def test_a_draft_is_as_long_as_asked_for() -> None:
    lookup = PromptLookup([5, 6, 7, 8, 5, 6])

    assert [len(lookup.draft(most)) for most in range(6)] == list(range(6))
