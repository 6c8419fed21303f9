"""CONTRIBUTING.md leads to files that are there."""

from __future__ import annotations

import re

from tests.support.imports import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATH = re.compile(r"`((?:q35chat|export|tests|tools)/[\w/.-]*)`")
JOURNEYS = {
    "A prompt": 20,
    "A picture": 8,
    "A weight": 12,
    "A setting": 10,
    "A key press": 10,
    "A request": 12,
}


def journey(name: str) -> list[str]:
    """The files of a journey, in order."""
    _, _, after = PAGE.partition(f"**{name}**, from ")
    steps = re.split(r"^(?:\*\*|##|and )", after, maxsplit=1, flags=re.MULTILINE)[0]
    return PATH.findall(steps)


def test_every_path_that_is_named_is_there() -> None:
    assert [path for path in PATH.findall(PAGE) if not (ROOT / path).exists()] == []


def test_the_journeys_name_their_files_once_and_in_order() -> None:
    for name, most in JOURNEYS.items():
        files = journey(name)
        assert 5 <= len(files) <= most, name
        assert len(set(files)) == len(files), name
        assert [file for file in files if not file.endswith(".py")] == [], name


def test_a_prompt_passes_at_most_twenty_files() -> None:
    files = journey("A prompt")
    assert files[0].startswith("q35chat/tui/widgets/")
    assert files[-1] == "q35chat/chat/turn/answer.py"
    assert len(files) <= 20
