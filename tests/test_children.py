"""Children that run Python: they find this project, and nothing in the folder they start in."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from q35chat.ascend.diagnosis import lite_library
from q35chat.bench.machine import measured_apart
from q35chat.commands.export_process import ChildExporter
from q35chat.diagnosis.machine import look, onnxruntime
from q35chat.errors import CheckpointError
from q35chat.processes import python_command, python_environment
from q35chat.tui.exporting import BundleWish
from q35export.ascend import converter
from tests.support.imports import ROOT

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
    assert [check.status for check in onnxruntime()] == ["ok"]
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
    monkeypatch.setattr(converter, "find_spec", lambda name: object())
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
    files = [file for folder in ("q35chat", "export") for file in (ROOT / folder).rglob("*.py")]
    starts = {
        str(file.relative_to(ROOT)): re.findall(r"sys\.executable(.{0,6})", file.read_text("utf-8"))
        for file in files
    }
    loose = {
        name: found
        for name, found in starts.items()
        if name not in shown and any(not after.startswith(', "-P"') for after in found)
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
    assert [check.status for check in onnxruntime()] == ["ok"]


def test_a_library_that_says_what_is_no_text_is_told_of() -> None:
    said = look("import sys; sys.stderr.buffer.write(b'bad \\xff'); sys.exit(3)")
    assert said.note == "bad \ufffd"
