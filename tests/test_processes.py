"""What is shown as a command can be typed; children that run Python find this project, and nothing
in the folder they start in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.ascend.diagnosis import lite_library
from q35chat.bench.machine import measured_apart
from q35chat.commands.export_process import ChildExporter
from q35chat.diagnosis.machine import look, onnxruntime
from q35chat.errors import CheckpointError
from q35chat.processes import export_command, program, python_command, python_environment
from q35chat.tui.exporting import BundleWish
from q35export.ascend import converter
from q35export.ascend.cann_python import CannPython
from tests.support.imports import ROOT


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


SPEAKS = "import sys; print('中文 \\udcff', input()); print('é', file=sys.stderr)"
POISON = "open({mark!r}, 'w').close()\nraise SystemExit('this folder was imported from')\n"
NAMES = ("argparse", "concurrent", "json", "numpy", "onnxruntime", "q35chat", "q35export",
         "pathlib", "sitecustomize", "subprocess", "threading")  # fmt: skip


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once a module of the working folder was imported."""
    mark = tmp_path / "imported"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(POISON.format(mark=str(mark)))
    monkeypatch.chdir(tmp_path)
    return mark


def measure_bandwidth() -> None:
    assert measured_apart(1) is not None


def look_at_libraries() -> None:
    assert {check.status for check in onnxruntime()} == {"ok"}
    assert "imported from" not in lite_library().note


def estimate_an_export() -> None:
    wish = BundleWish("nope", "huggingface", "int8", 64, Path("out"))
    with pytest.raises(CheckpointError, match="no folder 'nope'"):
        ChildExporter().job().estimate(wish)


def convert_with_the_package() -> None:
    found = converter.find_converter()
    assert found is not None
    done = subprocess.run(
        [*found.command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=python_environment(),
    )
    assert "--modelFile" in done.stdout


@pytest.mark.parametrize(
    "start",
    [measure_bandwidth, look_at_libraries, estimate_an_export, convert_with_the_package],
)
def test_a_child_imports_nothing_from_the_folder_it_is_started_in(
    mark: Path, start: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("MSLITE_HOME", raising=False)
    probe = CannPython.probe
    monkeypatch.setattr(CannPython, "probe", lambda path: replace(probe(path), has_lite=True))
    start()
    assert not mark.exists()


def test_the_poison_of_these_tests_works(mark: Path) -> None:
    command = [part for part in python_command("-c", "import json") if part != "-P"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    assert mark.exists()


def test_a_child_can_import_what_its_parent_can(tmp_path: Path) -> None:
    program = "import json, q35chat, q35export; print(json.dumps([q35chat.__file__]))"
    done = subprocess.run(
        python_command("-c", program),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=python_environment(),
    )
    assert json.loads(done.stdout) == [str(ROOT / "q35chat" / "__init__.py")]


def test_no_other_way_to_start_python_is_left() -> None:
    """Each place that names the interpreter keeps the working folder out, or only shows it."""
    shown = {"q35chat/processes.py", "q35chat/diagnosis/machine.py"}
    elsewhere = {"export/q35export/ascend/cann_python.py"}  # and started in another folder
    files = [file for folder in ("q35chat", "export") for file in (ROOT / folder).rglob("*.py")]
    starts = {
        str(file.relative_to(ROOT)): re.findall(r"sys\.executable(.{0,6})", file.read_text("utf-8"))
        for file in files
    }
    loose = {
        name: found
        for name, found in starts.items()
        if name not in shown | elsewhere and any(not after.startswith(', "-P"') for after in found)
    }
    assert loose == {}


def test_a_child_is_understood_whatever_the_terminal_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    done = subprocess.run(
        python_command("-c", SPEAKS),
        input="é".encode(),
        capture_output=True,
        check=True,
        env=python_environment(),
    )
    assert done.stdout.decode() == "中文 \\udcff é\n"
    assert done.stderr.decode() == "é\n"
    assert {check.status for check in onnxruntime()} == {"ok"}


def test_a_library_that_says_what_is_no_text_is_told_of() -> None:
    said = look("import sys; sys.stderr.buffer.write(b'bad \\xff'); sys.exit(3)")
    assert said.note == "bad \ufffd"
