"""What is shown as a command can be typed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from q35chat.processes import export_command, program


def script(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "q35chat"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with nothing on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python3"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_name_is_enough_where_it_is_on_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join(["/nowhere", str(script(bare / "bin").parent)]))
    assert program() == "q35chat"
    assert export_command() == "q35chat export Qwen/Qwen3.5-0.8B --out out/"


@pytest.mark.parametrize("started_as", [".venv/bin/q35chat", "absolute"])
def test_the_program_of_an_environment_below_this_folder_is_named_from_here(
    bare: Path, monkeypatch: pytest.MonkeyPatch, started_as: str
) -> None:
    path = script(bare / ".venv" / "bin")
    monkeypatch.setattr(sys, "argv", [str(path) if started_as == "absolute" else started_as])
    assert program() == ".venv/bin/q35chat"
    assert export_command().startswith(".venv/bin/q35chat export ")


def test_a_program_elsewhere_is_named_by_its_whole_path_quoted(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(bare / "my tools")
    monkeypatch.setattr(sys, "argv", [str(path)])
    (bare / "here").mkdir()
    monkeypatch.chdir(bare / "here")
    assert program() == f"'{path}'"


def test_a_program_in_this_folder_is_not_looked_for_on_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(bare / "bin")
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.chdir(path.parent)
    assert program() == "./q35chat"


def test_a_child_names_the_script_of_its_environment(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(bare / "python")
    monkeypatch.setattr(sys, "argv", ["export_worker.py"])
    assert program() == str(path.relative_to(bare))


def test_a_source_tree_without_a_script_is_run_as_a_module(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert program() == "python/python3 -m q35chat"
