"""What holds for every folder of tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from q35chat.commands.wording import COMMAND_LINE
from q35chat.errors import speak
from tests.doubles.lite import npu

__all__ = ["npu"]

# The same examples in every run, and no example may fail because the machine is busy.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Messages are read as the program says them.
speak(COMMAND_LINE)

# A shell that starts a job in the background lets it ignore Ctrl+C, and so would every program that
# the tests start and stop with it: they would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def installed_program(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The program's name can be typed, however the tests were started."""
    script = tmp_path_factory.mktemp("installed") / "q35chat"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m q35chat \"$@\"\n", encoding="utf-8")
    script.chmod(0o755)
    os.environ["PATH"] = f"{script.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def own_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the conversations of whoever runs it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where parity is deselected as a whole, torch need not even be installed; where only the tests
    of one mark run, files that do not name it are not imported."""
    marks = config.getoption("markexpr")
    if "not parity" in marks:
        return True if collection_path.name == "parity" else None
    if marks not in {"parity", "tmux"} or not collection_path.match("test_*.py"):
        return None
    return True if f"mark.{marks}" not in collection_path.read_text(encoding="utf-8") else None
