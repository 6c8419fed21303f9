"""The manual page: all that the commands take, in the language of `man`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from q35chat import cli
from tests.support.imports import ROOT

REQUESTS = {".TH", ".SH", ".SS", ".TP", ".br"}


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(["man"]) == 0
    return capsys.readouterr().out


def read(page: str) -> str:
    """What a reader sees of it."""
    text = re.sub(r"\\f[BIR]", "", page).replace(r"\-", "-").replace(r"\&", "")
    return text.replace(r"\(dq", '"').replace(r"\e", "\\")


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and those within it, by what is typed."""
    yield name, command
    for part, inside in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {part}", inside)


def test_every_command_is_in_it_with_every_option_and_its_help(page: str) -> None:
    root: Any = typer.main.get_command(cli.app)
    sections = re.findall(r'^\.SS "([^"]+)"\n(.*?)(?=^\.S)', read(page), re.MULTILINE | re.DOTALL)
    for name in root.commands:
        for typed, command in commands(name, root.get_command(None, name)):
            body = next(body for head, body in sections if f"{head} ".startswith(f"{typed} "))
            for parameter in command.params:
                if parameter.param_type_name == "option":
                    assert all(opt.strip() in body for opt in parameter.opts)
                words = re.sub(r"\\\[|\[/?\w+\]", "[", parameter.help or "").split()[:4]
                assert " ".join(words) in body


def test_nothing_in_it_is_obeyed_but_what_it_means_to_say(page: str) -> None:
    for line in page.splitlines():
        assert line
        if line[0] in ".'":
            assert line.split()[0] in REQUESTS
    assert "[endpoint.NAME] in the settings" in read(page)
    assert set(re.findall(r"\\(.)", page)) <= set("-f&(e")


def test_its_exit_codes_are_those_of_the_readme(page: str) -> None:
    table = (ROOT / "README.md").read_text("utf-8").partition("## Exit codes")[2]
    codes = re.findall(r"^\| (\d+) \|", table.partition("\n## ")[0], re.MULTILINE)
    status = page.partition(".SH EXIT STATUS")[2].partition(".SH")[0]
    assert re.findall(r"\\fB(\d+)\\fR", status) == codes


def test_it_names_the_files_without_whose_they_are(page: str) -> None:
    files = read(page.partition(".SH FILES")[2])
    assert "settings.toml" in files
    assert "templates" in files
    assert str(Path.home()) not in files
