"""A mistake of our own ends the application with words on the terminal, never in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.patience import STILL_S, Patience
from tests.tui.test_on_a_terminal import program

_PROGRAM = """
import sys
from q35chat import cli
from q35chat.commands import chat
from q35chat.tui import app
from q35chat.tui.screens.chat import ChatScreen
from q35chat.tui.terminal import PatientDriver
from tests.doubles.scripted_workspace import ScriptedWorkspace

def broken(self):
    written = "".join(["private", " words"])
    raise ZeroDivisionError("twice\\nby none")

match sys.argv[1]:
    case "handler":
        ChatScreen.on_resize = broken
    case "worker":
        ChatScreen.on_resize = lambda self: self.run_worker(lambda: broken(self), thread=True)
    case "terminal":
        PatientDriver.run_input_thread = broken
chat._screen = lambda _, settings, problems: app.run(ScriptedWorkspace(), settings)
sys.exit(cli.run(sys.argv[2:]))
"""


@pytest.mark.parametrize("place", ["handler", "worker", "terminal"])
@pytest.mark.parametrize("debug", [False, True])
def test_an_application_that_breaks_says_so_and_where_it_is_written(
    place: str, debug: bool, tmp_path: Path
) -> None:
    homes = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "DATA")}
    options = ["--debug"] if debug else []
    with program("-c", _PROGRAM, place, *options, TERM="xterm-256color", **homes) as session:
        patience = Patience()
        while session.read(patience, "the end"):
            pass
        code = session.program.wait(STILL_S)
    log = tmp_path / "STATE" / "q35chat" / "native.log"
    left = session.raw.decode("utf-8", "replace").rpartition("\x1b[?1049l")[2]
    words = " ".join(left.split())
    assert code == 1
    assert "q35chat: the chat had to end: unexpected ZeroDivisionError: twice by none" in words
    assert str(log) in words
    assert ("Traceback (most recent call last)" in left) is debug
    assert "ZeroDivisionError" in log.read_text("utf-8")
    assert "private words" not in log.read_text("utf-8")
