"""Which branches a tree of turns has, in which order, and where each of them ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.history.records import TurnRecord
from q35chat.chat.history.tree import TurnTree
from q35chat.chat.values import Turn

PARENTS = st.lists(st.integers(0, 30), max_size=30)
"""For each turn the number of its parent among the turns before it; that of itself is none."""


def record(ident: str, parent: str | None) -> TurnRecord:
    return TurnRecord(ident, parent, Turn("user", ident), 0.0)


def tree_of(*pairs: tuple[str, str | None]) -> TurnTree:
    return TurnTree(record(*pair) for pair in pairs)


def test_an_empty_tree_has_no_branch() -> None:
    assert TurnTree().ends == ()


def test_branches_stand_in_the_order_in_which_they_were_begun() -> None:
    tree = tree_of(("q", None), ("a", "q"), ("other q", None), ("again", "q"), ("b", "other q"))
    assert tree.ends == ("a", "b", "again")


def test_the_first_turn_under_another_goes_on_with_its_branch() -> None:
    tree = tree_of(("q", None), ("a", "q"), ("again", "q"), ("on", "a"), ("further", "on"))
    assert tree.ends == ("further", "again")
    assert [tree.end_of(ident) for ident in ("q", "on", "again")] == ["further", "further", "again"]


def test_a_walk_meets_every_turn_before_what_is_under_it_and_counts_the_forks() -> None:
    tree = tree_of(("q", None), ("a", "q"), ("again", "q"), ("on", "a"), ("more", "on"))
    walked = [(turn.id, forks) for turn, forks in tree.walk()]
    assert walked == [("q", 0), ("a", 1), ("on", 1), ("more", 1), ("again", 1)]
    roots = tree_of(("q", None), ("other", None))
    assert [(turn.id, forks) for turn, forks in roots.walk()] == [("q", 1), ("other", 1)]


def test_a_tree_with_more_turns_has_their_branches_and_the_one_before_has_not() -> None:
    before = tree_of(("q", None), ("a", "q"))
    assert before.ends == ("a",)
    after = before.having((record("a", "q"), record("again", "q")))
    assert (before.ends, after.ends) == (("a",), ("a", "again"))


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "a")],
        [("a", "b"), ("b", "a")],
        [("q", None), ("a", "c"), ("b", "a"), ("c", "b")],
        [("a", "gone"), ("b", "a")],
    ],
)
def test_no_path_is_without_end_whatever_the_parents_are(
    pairs: list[tuple[str, str | None]],
) -> None:
    tree = tree_of(*pairs)
    for ident, _ in pairs:
        path = tree.path(ident)
        assert path[-1].id == ident
        assert path[0].parent is None
        assert tree.end_of(ident) in tree.ends


def test_a_turn_in_place_of_another_stays_where_that_one_was() -> None:
    tree = tree_of(("q", None), ("a", "q"), ("b", "a")).having((record("q", "b"),))
    assert [turn.id for turn in tree.path("b")] == ["q", "a", "b"]
    assert tree.ends == ("b",)


def test_there_is_no_path_to_a_turn_that_is_not_there() -> None:
    assert tree_of(("q", None)).path("nope") == ()


@given(PARENTS)
def test_every_turn_without_a_turn_below_it_ends_one_branch(numbers: list[int]) -> None:
    parents = [number % (index + 1) for index, number in enumerate(numbers)]
    records = [
        record(str(index), None if parent == index else str(parent))
        for index, parent in enumerate(parents)
    ]
    tree = TurnTree(records)
    leaves = {each.id for each in records} - {each.parent for each in records}
    assert len(tree.ends) == len(leaves)
    assert set(tree.ends) == leaves
    assert all(tree.end_of(end) == end for end in leaves)
