from __future__ import annotations

import pytest

from q35chat.text import percentile, pluralise, turn_count


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 turns"), (1, "1 turn"), (2, "2 turns"), (1024.4, "1,024 turns")]
)
def test_a_number_agrees_with_its_noun(number: float, said: str) -> None:
    assert pluralise(number, "turn") == said


def test_a_chat_without_questions_was_begun_from_a_summary() -> None:
    assert [turn_count(turns) for turns in (0, 1, 2)] == ["from a summary", "1 turn", "2 turns"]


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert pluralise(1, "query", "queries") == "1 query"
    assert pluralise(2, "query", "queries") == "2 queries"


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ((), 50, 0.0),
        ((5.0,), 95, 5.0),
        ((3.0, 1.0, 2.0), 50, 2.0),
        ((4.0, 1.0, 3.0, 2.0), 50, 2.0),
        (tuple(float(n) for n in range(1, 101)), 95, 95.0),
        (tuple(float(n) for n in range(1, 101)), 50, 50.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: tuple[float, ...], percent: int, expected: float
) -> None:
    assert percentile(values, percent) == expected
