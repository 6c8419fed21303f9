"""Which terminals get graphics. A wrong yes would be garbage, so each fact is tried alone."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import threading

import pytest

from q35chat.tui.images.graphics import (
    GraphicsProtocol,
    PictureDisplay,
    Terminal,
    inspect_terminal,
)
from q35chat.tui.images.terminal_query import CELL, FENCE, NAME, Answers, ask, parse
from q35chat.user_input import GraphicsPreference
from tests.support.imports import ROOT

KITTY = {"TERM": "xterm-kitty", "KITTY_WINDOW_ID": "1"}
FOOT = {"TERM": "foot"}


def nobody() -> Answers:
    raise AssertionError("this terminal must not be asked")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TERM": "dumb"},
        {"TERM": "xterm-256color"},
        {"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"},
        {"TERM": "linux"},
        {"TERM": "screen", "KITTY_WINDOW_ID": "1"},
        {**KITTY, "STY": "1.pts"},
        {**KITTY, "ZELLIJ": "0"},
        {**KITTY, "INSIDE_EMACS": "29"},
        {**KITTY, "NO_COLOR": "1"},
    ],
)
def test_unknown_terminals_are_not_asked_and_get_half_blocks(environment: dict[str, str]) -> None:
    assert inspect_terminal(environment, nobody).best == "blocks"


@pytest.mark.parametrize(
    ("environment", "answers", "best"),
    [
        (KITTY, Answers("kitty(0.35.2)"), "kitty"),
        (KITTY, Answers("kitty(0.28.0)"), "kitty"),
        (KITTY, Answers("kitty(0.26.5)"), "blocks"),
        (KITTY, Answers(), "blocks"),
        (KITTY, Answers("Konsole 24.02"), "blocks"),
        (KITTY, Answers(f"kitty({'9' * 5_000}.1)"), "blocks"),
        (KITTY, Answers("WezTerm 20240203", sixel=True, cell=(9, 18)), "sixel"),
        ({**KITTY, "SSH_TTY": "/dev/pts/1"}, Answers("kitty(0.35.2)"), "kitty"),
        ({"TERM": "xterm-ghostty"}, Answers("ghostty 1.1.3"), "kitty"),
        (FOOT, Answers("foot(1.16.2)", sixel=True, cell=(8, 17)), "sixel"),
        (FOOT, Answers("foot(1.16.2)", sixel=True), "blocks"),
        (FOOT, Answers("foot(1.16.2)", cell=(8, 17)), "blocks"),
        ({**FOOT, "SSH_CONNECTION": "a"}, Answers("foot(1)", True, (8, 17)), "blocks"),
        ({"TERM": "xterm", "WT_SESSION": "x"}, Answers("", True, (10, 20)), "sixel"),
        ({"TERM": "xterm", "WT_SESSION": "x"}, Answers(), "blocks"),
    ],
)
def test_what_the_terminal_says_of_itself_decides(
    environment: dict[str, str], answers: Answers, best: GraphicsProtocol
) -> None:
    assert inspect_terminal(environment, lambda: answers).best == best


@pytest.mark.parametrize(
    ("passthrough", "clients", "best", "passes"),
    [
        ("on", "kitty(0.35.2)\tRGB,title", "kitty", True),
        ("all", "ghostty 1.1\tRGB\nkitty(0.40.0)\ttitle,RGB", "kitty", True),
        ("off", "kitty(0.35.2)\tRGB", "blocks", False),
        ("", "", "blocks", False),
        ("on", "", "blocks", True),
        ("on", "kitty(0.35.2)\ttitle", "blocks", True),
        ("on", "kitty(0.35.2)\tRGB\nXTerm(390)\tRGB", "blocks", True),
    ],
)
def test_inside_tmux_all_its_terminals_count(
    passthrough: str, clients: str, best: GraphicsProtocol, passes: bool
) -> None:
    def tmux(arguments: list[str]) -> str:
        says = {"show-options": passthrough, "list-clients": clients, "display-message": "$1"}
        return says[arguments[0]] + "\n"

    terminal = inspect_terminal({**KITTY, "TMUX": "/tmp/x,1,0"}, nobody, tmux)
    assert (terminal.best, terminal.in_tmux, terminal.passes) == (best, True, passes)


@pytest.mark.parametrize(
    ("preference", "terminal", "protocol"),
    [
        ("auto", Terminal("kitty"), "kitty"),
        ("auto", Terminal(), "blocks"),
        ("kitty", Terminal(), "kitty"),
        ("kitty", Terminal(in_tmux=True, passes=False), "blocks"),
        ("sixel", Terminal(), "sixel"),
        ("sixel", Terminal(in_tmux=True), "blocks"),
        ("blocks", Terminal("kitty"), "blocks"),
        ("none", Terminal("kitty"), "none"),
    ],
)
def test_a_wish_is_followed_unless_it_ends_in_garbage(
    preference: GraphicsPreference, terminal: Terminal, protocol: GraphicsProtocol
) -> None:
    assert PictureDisplay(preference, terminal).protocol == protocol


def conversation(says: bytes, timeout_s: float = 30.0) -> tuple[Answers, bytes, bytes]:
    """Ask a terminal that says this: the answers, what it heard, what was echoed to it."""
    master, slave = pty.openpty()
    heard = bytearray()

    def terminal() -> None:
        while not heard.endswith(FENCE.encode()):
            heard.extend(os.read(master, 1024))
        os.write(master, says)

    other = threading.Thread(target=terminal, daemon=True)
    other.start()
    answers = ask(slave, slave, timeout_s)
    other.join(30)
    assert not other.is_alive(), "the terminal was never asked the last question"
    os.set_blocking(master, False)
    try:
        echo = os.read(master, 1024)
    except BlockingIOError:
        echo = b""
    os.close(slave)
    os.close(master)
    return answers, bytes(heard), echo


def test_a_terminal_is_asked_and_its_answers_are_not_echoed() -> None:
    says = b"\x1bP>|kitty(0.35.2)\x1b\\\x1b[6;18;9t\x1b[?62;4;22c"
    answers, heard, echo = conversation(says)
    assert answers == Answers("kitty(0.35.2)", True, (9, 18))
    assert heard.decode() == NAME + CELL + FENCE
    assert echo == b""


def test_what_is_typed_while_the_terminal_answers_is_kept() -> None:
    says = "wh\x1bP>|foot(1.16.2)\x1b\\at é\x1b[A中\x1b[?62;22c".encode()
    answers, _, _ = conversation(says)
    assert answers == Answers("foot(1.16.2)", typed="what é中")


def test_a_terminal_that_does_not_end_its_answers_counts_as_unknown() -> None:
    answers, _, _ = conversation(b"\x1bP>|kitty(0.35.2)\x1b\\", timeout_s=0.05)
    assert answers == Answers()


def test_no_terminal_answers_nothing() -> None:
    reading, writing = os.pipe()
    assert ask(reading, writing) == Answers()
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        (b"", Answers()),
        (b"\x1b[?1;2c", Answers()),
        (b"\x1b[?4c", Answers()),
        (b"\x1b[6;0;0t\x1b[?62;4c", Answers(sixel=True)),
        (b"\x1bP>|a\x07b\x1b\\\x1b[?62c", Answers()),
        (b"\x1b[6;" + b"9" * 5_000 + b";9t\x1b[?62;4c", Answers(sixel=True)),
    ],
)
def test_odd_answers_are_no_answers(said: bytes, answers: Answers) -> None:
    assert parse(said) == answers


def test_a_signal_to_end_waits_until_the_terminal_is_as_it_was() -> None:
    master, slave = pty.openpty()
    before, heard = termios.tcgetattr(slave), b""
    asking = "from q35chat.tui.images.terminal_query import ask; ask(0, 0, 60.0)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", asking], stdin=slave, env=environment) as process:
        while not heard.endswith(FENCE.encode()):
            heard += os.read(master, 1024)
        process.send_signal(signal.SIGTERM)
        os.write(master, b"\x1b[?62c")
    assert process.returncode == -signal.SIGTERM
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)
