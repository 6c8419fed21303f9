from __future__ import annotations

import json
import sys

import pytest

from q35chat.text import json_safe, safe_line, safe_text


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
