from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from q35chat.text import (
    json_safe,
    percentile,
    pluralise,
    quoted,
    readable_size,
    safe_line,
    safe_text,
    turn_count,
)


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


NAMES = [
    "out",
    "my model",
    "it's",
    "ä/模型",
    "a\nb",
    "a\x1b[31mb",
    "a\tb'c\\d e",
    "\x7f1",
    "\u202egpj.exe",
    os.fsdecode(b"a\xffb"),
    "$(rm -r x)`\n$HOME",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_quoted_name_can_be_shown_and_typed(name: str) -> None:
    word = quoted(name)
    assert safe_line(word) == word
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-c", f"printf %s {word}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert done.stdout == os.fsencode(name)


def test_plain_names_stay_as_they_are() -> None:
    assert quoted("./out/a-b_1") == "./out/a-b_1"


def test_a_lone_surrogate_is_spelled() -> None:
    assert quoted("\ud800") == r"$'\xed\xa0\x80'"


def test_ordinary_text_is_untouched() -> None:
    text = "naïve 中文 🎉\tand [bold]markup[/bold]\nnext line"
    assert safe_text(text) == text


@pytest.mark.parametrize(
    "harmful",
    ["\x1b", "\r", "\x07", "\x00", "\x7f", "\x9b", "\u202e", "\u2066", "\udcff", "\U0010eeee"],
)
def test_what_steers_a_terminal_becomes_visible(harmful: str) -> None:
    shown = safe_text(f"a{harmful}b")
    assert harmful not in shown
    assert len(shown) >= 3
    shown.encode("utf-8")


def test_safe_text_may_be_cut_anywhere() -> None:
    text = "one \x1b[31m two\x9b3m"
    assert "".join(safe_text(char) for char in text) == safe_text(text)


def test_safe_line_is_one_line_of_limited_length() -> None:
    line = safe_line("a\nb\tc" * 100, limit=20)
    assert len(line) == 20
    assert line.startswith("a␊b␉c")
    assert line.endswith("…")


def test_json_keeps_its_value_and_loses_the_harmful_characters() -> None:
    value = {"text": "\x1b\x9b\u202e\x7f中文"}
    document = json_safe(json.dumps(value, ensure_ascii=False))
    assert json.loads(document) == value
    assert not any(char in document for char in "\x1b\x9b\u202e\x7f")
    assert "中文" in document


def test_json_keeps_every_character_also_beyond_four_hex_digits() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]))
    document = json_safe(json.dumps(every, ensure_ascii=False))
    assert json.loads(document) == every
    assert safe_text(document) == document


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (5 << 30, "5.0 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes_are_given_in_the_unit_that_suits_them(count: int, text: str) -> None:
    assert readable_size(count) == text
