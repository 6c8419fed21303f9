from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from q35chat.text import quoted, safe_line

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
