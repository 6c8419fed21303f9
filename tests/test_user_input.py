"""Numbers and paths as people type them, and what else could be typed in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.user_input import MOST, typed_number, typed_path


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("7", 7), ("007", 7), ("٣", 3), (str(MOST), MOST), (str(MOST + 1), None)],
)
def test_digits_are_a_number_up_to_the_largest_that_counts(text: str, number: int | None) -> None:
    assert typed_number(text) == number


@pytest.mark.parametrize("text", ["", " 1", "-1", "1.5", "1_0", "²", "one", "9" * 5_000])
def test_any_other_text_is_no_number(text: str) -> None:
    assert typed_number(text) is None


def test_a_number_over_the_bound_of_the_question_is_none() -> None:
    assert typed_number("3", 3) == 3
    assert typed_number("4", 3) is None


def test_a_home_folder_is_named_by_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert typed_path("~/a b.png") == tmp_path / "a b.png"
    assert typed_path("a/~b") == Path("a/~b")


def test_the_home_of_nobody_is_a_path_as_it_is_written() -> None:
    assert typed_path("~nobody-of-that-name/a.png") == Path("~nobody-of-that-name/a.png")
