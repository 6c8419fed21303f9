"""What is shown as a command can be typed: no text spells the program's name before one.

`processes.program()` says what to type. This reads every string of the sources, except what only
their readers see: docstrings of modules and classes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from q35chat import cli
from q35chat.cli import Commands
from tests.support.imports import modules

MODULES = dict(pair for package in ("q35chat", "q35export") for pair in modules(package))
SPELLED = re.compile(rf"q35chat (?:-|(?:{'|'.join(Commands.NAMES)})\b)")


def texts(source: str) -> Iterator[str]:
    """All strings of a source, but for the docstrings of its module and its classes."""
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
    firsts = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in firsts:
            yield " ".join(node.value.split())


def spelled(source: str) -> list[str]:
    """The texts that show a command with the program's bare name."""
    return [text for text in texts(source) if SPELLED.search(text)]


def test_no_text_spells_the_programs_name_before_a_command() -> None:
    found = {name: spelled(file.read_text(encoding="utf-8")) for name, file in MODULES.items()}
    assert {name: shown for name, shown in found.items() if shown} == {}


@pytest.mark.parametrize(
    "source",
    [
        'said = "no chat yet; q35chat ask begins one"',
        'said = (f"{path} is not converted: run q35chat "\n"convert {folder}")',
        'print("q35chat --plain")',
        'def command():\n    """See q35chat export."""',
    ],
)
def test_a_spelled_command_is_found(source: str) -> None:
    assert len(spelled(source)) == 1


def test_docstrings_of_modules_and_classes_and_the_bare_name_are_no_advice() -> None:
    source = '"""The module of `q35chat ask`."""\nclass A:\n    """Of q35chat export."""\n'
    assert spelled(f'{source}    name = "update q35chat"') == []


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on PATH and no chat yet; the program is run as a module."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/opt/python3")
    monkeypatch.setattr("sys.argv", ["__main__.py"])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["sessions", "list"], "no chats yet; /opt/python3 -m q35chat begins one"),
        (["sessions", "show"], "is no chat yet. `/opt/python3 -m q35chat ask` begins one."),
        (["sessions", "show", "x"], "`/opt/python3 -m q35chat sessions list` shows their ids."),
        (["sessions", "sow"], "Try /opt/python3 -m q35chat sessions --help"),
        (["--plane"], "Try /opt/python3 -m q35chat --help"),
    ],
)
def test_advice_names_the_program_as_it_was_started(
    arguments: list[str], hint: str, elsewhere: None, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(arguments)
    assert hint in capsys.readouterr().err
