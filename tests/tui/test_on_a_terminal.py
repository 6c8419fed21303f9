"""The whole program on a pseudo-terminal that answers as Kitty does, byte for byte."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from q35chat.tui.images.terminal_query import FENCE
from tests.doubles.picture_terminal import PictureTerminal
from tests.support.environment import SIZE, environment_without
from tests.support.patience import STILL_S, Patience
from tests.tui.support import picture_file

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import sys
from pathlib import Path
from q35chat.settings import Settings
from q35chat.tui.app import run
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
sys.exit(run(ScriptedWorkspace([Reply("It is a house.")]), Settings(), images=[Path(sys.argv[1])]))
"""
_KITTY = b"\x1bP>|kitty(0.35.2)\x1b\\\x1b[6;20;10t\x1b[?62;52c"
CTRL_Q = b"\x11"
ASKED = b"Stop it and quit?"
_PICTURE_CELL = re.compile("\U0010eeee|[\U00100000-\U0010fffd]")


class Session:
    """A program on a terminal: what it wrote, and keys for it."""

    def __init__(self, master: int, program: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.program = program
        self.raw = bytearray()

    @property
    def screen(self) -> str:
        """What stands on it, as far as cells without colours and pictures tell."""
        terminal = PictureTerminal((10, 20))
        with suppress(AssertionError):  # the last sequence may have come in part
            terminal.feed(self.raw.decode("utf-8", "ignore"))
        return "\n".join(terminal.row(y) for y in range(36)).rstrip()

    def read(self, patience: Patience, wish: str) -> bool:
        """Read what there is, waiting for it; whether the program still writes."""
        left = patience.left_s
        ready = left > 0 and select.select([self._master], [], [], left)[0]
        assert ready, f"{wish} never came:\n{self.screen}"
        patience.progress()
        try:
            part = os.read(self._master, 1 << 16)
        except OSError:  # how a closed pseudo-terminal reads on Linux
            part = b""
        self.raw += part
        return bool(part)

    def until(self, words: str) -> None:
        """Read until the program has written something."""
        start, patience = len(self.raw), Patience()
        while words.encode() not in self.raw[max(0, start - 200) :]:
            assert self.read(patience, repr(words)), f"ended without {words!r}:\n{self.screen}"

    def send(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def quit(self) -> int:
        """Press Ctrl+Q, agree to stop an answer that has not ended yet, read on; the exit code."""
        patience, asked = Patience(), False
        self.send(CTRL_Q)
        while self.read(patience, "the end"):
            if not asked and ASKED in self.raw:
                asked = True
                self.send(b"y")
        return self.program.wait(STILL_S)


@contextmanager
def program(*arguments: str, **environment: str) -> Iterator[Session]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 36, 120, 1200, 720))
    kept = environment_without("TMUX", "NO_COLOR", *SIZE)
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=_ROOT,
        env={**kept, "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none", **environment},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Session(master, child)
    finally:
        child.kill()
        child.wait()
        os.close(master)


def test_a_picture_is_drawn_by_kitty_and_freed_at_the_end(tmp_path: Path) -> None:
    picture = str(picture_file(tmp_path))
    with program("-c", _PROGRAM, picture, TERM="xterm-kitty") as session:
        session.until(FENCE)
        session.send(_KITTY)
        session.until("house.png")
        session.until("4 slots")
        session.send(b"what?\r")
        session.until("U=1")
        session.until("It is a house.")
        drawn = PictureTerminal((10, 20))
        drawn.feed(_whole(session.raw))
        assert session.quit() == 0
    rows = [drawn.row(y) for y in range(36)]
    assert sum("#" * 28 in row for row in rows) == 7
    assert len(drawn.images) == 1
    after = PictureTerminal((10, 20))
    after.feed(session.raw.decode())
    assert after.images == {}
    assert session.raw.index(b"a=d,d=I") < session.raw.rindex(b"\x1b[?1049l")


def test_a_terminal_without_graphics_sees_none_of_their_signs(tmp_path: Path) -> None:
    picture = str(picture_file(tmp_path))
    with program("-c", _PROGRAM, picture, TERM="xterm-256color") as session:
        session.until("4 slots")
        session.send(b"what?\r")
        session.until("▀")
        session.until("It is a house.")
        assert session.quit() == 0
    text = session.raw.decode()
    assert FENCE not in text
    assert "\x1b_G" not in text
    assert "\x1bP" not in text
    assert not _PICTURE_CELL.search(text)


@pytest.mark.usefixtures("real_work")
def test_quitting_while_the_model_computes_ends_well() -> None:
    with program("-m", "q35chat", "--prompt", "Count to 300", TERM="xterm-256color") as session:
        session.until("this turn needs")
        session.send(b"\r")
        session.until("tok/s")
        assert session.quit() == 0
    assert b"terminate called" not in session.raw


def _whole(raw: bytearray) -> str:
    """What was read so far, up to the last sequence that is complete."""
    text = raw.decode("utf-8", "ignore")
    return text[: text.rindex("\x1b[")]
