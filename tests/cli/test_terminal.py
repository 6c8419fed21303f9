"""The line-by-line chat on a real terminal: keys in, lines out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.imports import ROOT

# Not a function between fork and exec: other tests may have left threads in this process.
# A shell's background and nohup ignore signals that a program on a terminal gets.
TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


PATIENCE_S = 120.0
"""A screen never falls silent, so each wait has an end of its own."""


class Typist:
    """Types on the master side of a terminal and reads what appears there."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.seen = ""
        self._place = 0

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` appears after what was waited for before."""
        until = time.monotonic() + PATIENCE_S
        while not self._find(text):
            assert self._read(until), f"{text!r} never came: {self.seen!r}"

    def insist(self, keys: str, text: str) -> None:
        """Type `keys` until `text` appears: a signal just before input() waits is not noticed."""
        until = time.monotonic() + PATIENCE_S
        self.type(keys)
        while not self._find(text):
            assert time.monotonic() < until, f"{text!r} never came: {self.seen!r}"
            if not self._read(time.monotonic() + 1):
                self.type(keys)

    def hang_up(self) -> None:
        """Take the terminal away, once."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def wait_for_end(self) -> None:
        """Read until the program has gone."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                assert self._read(until), f"it never ended: {self.seen!r}"
            except OSError:  # how a closed terminal reads on Linux
                return

    def _find(self, text: str) -> bool:
        found = self.seen.find(text, self._place)
        self._place = max(self._place, found + len(text) if found >= 0 else 0)
        return found >= 0

    def _read(self, until: float) -> bool:
        """Read what there is; whether anything came before a moment."""
        left = until - time.monotonic()
        ready = left > 0 and select.select([self._master], [], [], left)[0]
        self.seen += os.read(self._master, 4096).decode(errors="replace") if ready else ""
        return bool(ready)


@contextmanager
def terminal(
    script: str, *arguments: str, home: Path, term: str = "dumb"
) -> Iterator[tuple[Typist, subprocess.Popen[bytes]]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    paths = os.pathsep.join([str(ROOT), str(ROOT / "export")])
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, "-m", "tests.cli.scripted_main", script, *arguments],
        env=os.environ | {"PYTHONPATH": paths, "TERM": term, "HOME": str(home)},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    typist = Typist(master)
    try:
        yield typist, process
    finally:
        process.kill()
        process.wait()
        typist.hang_up()


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(tmp_path: Path) -> None:
    chat = ("chat", "--plain", "--model-dir", "scripted")
    with terminal("waiting", *chat, home=tmp_path) as (typist, process):
        typist.wait_for("> ")
        typist.type("hello\r")
        typist.wait_for("go ")
        typist.type("\x03")
        typist.wait_for("stopped")
        typist.wait_for("> ")
        typist.insist("\x03", "(Ctrl+D leaves)")
        typist.wait_for("> ")
        typist.type("\x04")
        assert process.wait(PATIENCE_S) == 0
    assert "end\r\nstopped" in typist.seen
    assert "Traceback" not in typist.seen


def test_a_dumb_terminal_is_told_of_the_other_ways(tmp_path: Path) -> None:
    with terminal("waiting", home=tmp_path) as (typist, process):
        typist.wait_for("q35chat chat --plain")
        assert process.wait(PATIENCE_S) == 2


SCREEN = ("chat", "--model-dir", "scripted")
LEAVES = "\x1b[?1049l"


def test_the_screen_can_be_left_while_the_model_loads(tmp_path: Path) -> None:
    with terminal("loading", *SCREEN, home=tmp_path, term="xterm-256color") as (typist, process):
        typist.wait_for("loading the model")
        typist.type("\x11")
        typist.wait_for(LEAVES)
        typist.wait_for_end()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_terminated_screen_gives_the_terminal_back(
    tmp_path: Path, ending: signal.Signals
) -> None:
    with terminal("waiting", *SCREEN, home=tmp_path, term="xterm-256color") as (typist, process):
        typist.wait_for("slots for each chat")
        process.send_signal(ending)
        typist.wait_for(LEAVES)
        typist.wait_for_end()
        assert process.wait(PATIENCE_S) == 128 + ending


def test_a_screen_whose_terminal_is_gone_ends_as_one_that_is_hung_up(tmp_path: Path) -> None:
    with terminal("waiting", *SCREEN, home=tmp_path, term="xterm-256color") as (typist, process):
        typist.wait_for("slots for each chat")
        typist.hang_up()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGHUP
