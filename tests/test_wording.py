"""Below the surfaces it is said what happened; what options are called, the surfaces know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from q35chat.cli import app
from q35chat.commands.wording import COMMAND_LINE, FORM
from q35chat.errors import OccupiedError, Option, Q35Error, Remedy, UsageError, Words, speak
from tests.support.imports import modules

# The command line itself, the screen, and the one command that every surface shows.
SURFACES = ("q35chat.cli", "q35chat.commands", "q35chat.tui", "q35chat.processes")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![\w-])")


@pytest.fixture
def form() -> Iterator[None]:
    speak(FORM)
    yield
    speak(COMMAND_LINE)


def options() -> set[str]:
    """Every long option of every command."""
    commands: list[Any] = [typer.main.get_command(app)]
    found: set[str] = set()
    while commands:
        command = commands.pop()
        for parameter in command.params:
            found |= {*parameter.opts, *parameter.secondary_opts}
        names = getattr(command, "commands", {})
        commands += [command.get_command(None, name) for name in names]
    return {name for name in found if name.startswith("--")}


def named_below_the_surfaces(names: set[str]) -> list[str]:
    found = []
    for package in ("q35chat", "q35export"):
        for module, file in modules(package):
            if any(module == part or module.startswith(f"{part}.") for part in SURFACES):
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    named = set(OPTION.findall(node.value)) & names
                    found += [f"{module}:{node.lineno} {name}" for name in sorted(named)]
    return found


def test_no_text_below_the_surfaces_names_an_option() -> None:
    names = options()
    assert {"--out", "--max-seq-len", "--no-verify", "--residency", "--mtp"} <= names
    assert named_below_the_surfaces(names) == []


def test_the_command_line_has_its_own_name_for_every_option() -> None:
    assert {str(COMMAND_LINE[option]).split()[-1] for option in Option} - options() == {
        "modelscope"
    }
    for remedy, words in COMMAND_LINE.items():
        if isinstance(remedy, Remedy) and isinstance(words, str):
            assert set(OPTION.findall(words)) <= options()


@pytest.mark.parametrize("words", [{}, COMMAND_LINE, FORM])
def test_words_need_no_fact_that_others_do_not(words: Words) -> None:
    for remedy in Remedy:
        said = words.get(remedy, "")
        if isinstance(said, str):
            assert set(re.findall(r"{(\w+)}", said)) <= set(re.findall(r"{(\w+)}", remedy.value))


def test_an_error_is_one_line_of_what_happened_and_what_to_do() -> None:
    error = UsageError(f"{Option.OUT} o is a file", Remedy.ANOTHER_FOLDER)
    assert str(error) == "--out o is a file; choose another --out"
    assert (error.remedy, error.exit_code) == (Remedy.ANOTHER_FOLDER, 2)
    room = Q35Error("5 slots, 4 are there:", Remedy.MEASURE_LESS_TOKENS, slots=3)
    assert str(room) == (
        "5 slots, 4 are there: use --tokens 3 or less, or export with a larger --max-seq-len"
    )
    assert room.facts == {"slots": 3}
    assert str(Q35Error("{braces} of a path: a%s")) == "{braces} of a path: a%s"


def test_a_form_has_its_own_words_and_leaves_out_what_it_offers_itself(form: None) -> None:
    assert str(UsageError(f"{Option.OUT} o is a file", Remedy.ANOTHER_FOLDER)) == (
        "the folder o is a file; choose another folder"
    )
    assert str(Q35Error("o is no JSON", Remedy.EXPORT_AGAIN)) == "o is no JSON; replace it"
    assert Remedy.ANOTHER_NETWORK.words().endswith("use ModelScope, or give a local folder")
    held = OccupiedError("o holds a bundle of 32 slots, not 64", Remedy.REPLACE_OR_ANOTHER_FOLDER)
    assert str(held) == "o holds a bundle of 32 slots, not 64"


def test_where_no_surface_speaks_no_option_is_named() -> None:
    speak({})
    said = [str(option) for option in Option] + [remedy.value for remedy in Remedy]
    speak(COMMAND_LINE)
    assert not [text for text in said if OPTION.search(text)]
