"""The line-by-line chat on a real terminal: keys in, lines out."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.imports import ROOT

# Not a function between fork and exec: other tests may have left threads in this process.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


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
        while (found := self.seen.find(text, self._place)) < 0:
            part = os.read(self._master, 4096).decode(errors="replace")
            assert part, f"the terminal closed before {text!r}: {self.seen!r}"
            self.seen += part
        self._place = found + len(text)


@contextmanager
def terminal(
    script: str, *arguments: str, home: Path, term: str = "dumb"
) -> Iterator[tuple[Typist, subprocess.Popen[bytes]]]:
    master, slave = pty.openpty()
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
    try:
        yield Typist(master), process
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(tmp_path: Path) -> None:
    chat = ("chat", "--plain", "--model-dir", "scripted")
    with terminal("waiting", *chat, home=tmp_path) as (typist, process):
        typist.wait_for("> ")
        typist.type("hello\r")
        typist.wait_for("go ")
        typist.type("\x03")
        typist.wait_for("stopped")
        typist.wait_for("> ")
        typist.type("\x03")
        typist.wait_for("(Ctrl+D leaves)")
        typist.wait_for("> ")
        typist.type("\x04")
        assert process.wait() == 0
    assert "end\r\nstopped" in typist.seen
    assert "Traceback" not in typist.seen


def test_a_dumb_terminal_is_told_of_the_other_ways(tmp_path: Path) -> None:
    with terminal("waiting", home=tmp_path) as (typist, process):
        typist.wait_for("q35chat chat --plain")
        assert process.wait() == 2
