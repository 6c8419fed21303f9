from __future__ import annotations

import pytest

from q35chat.counting import counted, turns_said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 turns"), (1, "1 turn"), (2, "2 turns"), (1024.4, "1,024 turns")]
)
def test_a_number_agrees_with_its_noun(number: float, said: str) -> None:
    assert counted(number, "turn") == said


def test_a_chat_without_questions_was_begun_from_a_summary() -> None:
    assert [turns_said(turns) for turns in (0, 1, 2)] == ["from a summary", "1 turn", "2 turns"]


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert counted(1, "query", "queries") == "1 query"
    assert counted(2, "query", "queries") == "2 queries"
