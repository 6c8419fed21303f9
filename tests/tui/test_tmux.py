"""The whole program in a real terminal, from a shell prompt back to it.

Needs tmux, which `make test-tmux` asks for and CI installs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import ROOT
from tests.tui.support import picture_file
from tests.tui.tmux import Tmux, tmux

pytestmark = [pytest.mark.tmux, pytest.mark.usefixtures("real_work")]

Q35CHAT = (sys.executable, "-m", "q35chat")
_SCRIPTED = """
from q35chat.settings import Settings
from q35chat.tui.app import run
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
gate = Gate()
gate.let(6)
long = Reply("one two three four five six seven eight", gate=gate)
raise SystemExit(run(ScriptedWorkspace([long, Reply(" and the rest.")]), Settings()))
"""


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    """A shell in an empty folder, with folders of its own for all that the program keeps."""
    monkeypatch.setenv("COLUMNS", "80")  # as pytest's workers may have it: not for the terminal
    here, home = tmp_path / "here", tmp_path / "terminal"
    here.mkdir()
    home.mkdir()
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "LANG": "C.UTF-8",
        "COLORTERM": "truecolor",
    }
    with tmux(home, here, environment) as started:
        yield started


def quit_from(terminal: Tmux) -> None:
    """Back to the shell. An answer whose last words are there may not have ended yet."""
    terminal.press("C-q")
    asked = "Stop it and quit?"
    if terminal.see_any(terminal.good_end, asked) == asked:
        terminal.press("y")
        terminal.see(terminal.good_end)


def test_a_conversation_with_the_demo_from_the_shell_and_back_and_again(terminal: Tmux) -> None:
    terminal.run(*Q35CHAT)
    terminal.see("This is the tiny demo model")
    terminal.type("What can you do?")
    terminal.see("this turn needs")
    terminal.press("Enter")
    terminal.see("first token")
    terminal.see("tok/s")
    terminal.see("STEP LATENCY")
    terminal.see("█")

    terminal.resize(80, 24)
    terminal.see("STEP LATENCY", gone=True)
    terminal.see("What can you do?")
    terminal.resize(120, 36)
    terminal.see("STEP LATENCY")

    terminal.paste("two lines\nin one paste\n")
    terminal.see("in one paste")
    terminal.see("this turn needs")
    terminal.see_times("first token", 2)  # once in the meters, once under the one answer

    terminal.press("C-l")
    terminal.see("Search titles and texts")
    terminal.press("Escape")
    terminal.see("Search titles and texts", gone=True)
    quit_from(terminal)
    assert "STEP LATENCY" not in terminal.screen

    terminal.run(*Q35CHAT)
    terminal.see("This is the tiny demo model")
    terminal.press("C-l")
    terminal.see("1 turn")
    terminal.press("Enter")
    terminal.see("▌ What can you do?")
    terminal.see("two lines")
    terminal.see("↑")
    quit_from(terminal)


def test_escape_stops_an_answer_and_quitting_asks_while_one_is_written(terminal: Tmux) -> None:
    terminal.run(sys.executable, "-c", _SCRIPTED)
    terminal.see("sends, Ctrl+J")
    terminal.type("count")
    terminal.press("Enter")
    terminal.see("one two three four five")
    terminal.press("C-q")
    terminal.see("Stop it and quit?")
    terminal.press("n")
    terminal.see("Stop it and quit?", gone=True)
    terminal.press("Escape")
    terminal.see("■ stopped")
    terminal.press("C-g")
    terminal.see("and the rest.")
    terminal.press("C-c")
    terminal.see("Ctrl+C again or Ctrl+Q leaves")
    quit_from(terminal)


def test_a_picture_is_drawn_in_half_blocks_with_its_colours(terminal: Tmux, tmp_path: Path) -> None:
    terminal.run(sys.executable, "-c", _SCRIPTED)
    terminal.see("sends, Ctrl+J")
    terminal.paste(str(picture_file(tmp_path)))
    terminal.see("house.png 64×32 4 slots")
    terminal.type("what is it?")
    terminal.press("Enter")
    terminal.see("▀" * 28)
    assert "48;2;200;80;40m" in terminal.colours
    terminal.press("Escape")
    terminal.see("■ stopped")
    quit_from(terminal)
