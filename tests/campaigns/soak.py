"""`python -m tests.campaigns.soak BUNDLE [--minutes M] [--screen]`: turns without a pause, and
memory is flat.

Runs `chat --plain` over the bundle, or the application in a terminal of its own, a new chat every
twenty turns, and prints its resident memory as time passes: at a twelfth, at half and at the end,
which are minutes 5, 30 and 60 of an hour. Ends with 1 where the end is more than 2 % above the
twelfth.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from q35chat.processes import python_command, python_environment

_TURNS = 20
_MOST = 1.02
_QUIET_S = 0.5
"""Without a byte for so long, the application waits for the next question."""
_ROWS, _COLUMNS = 36, 120


def resident_mib(process: psutil.Process) -> list[float]:
    """Memory of the program, and of the child that makes its prompts."""
    every = (process, *process.children(recursive=True))
    return [one.memory_info().rss / (1 << 20) for one in every]


def watch(program: subprocess.Popen[bytes], seconds: float, ask: Callable[[int], bool]) -> int:
    """Ask until the time is over; 1 where memory has risen or the program ended."""
    process, start, turns = psutil.Process(program.pid), time.monotonic(), 0
    marks = [seconds / 12, seconds / 2, seconds]
    seen: list[float] = []
    while len(seen) < len(marks):
        if not ask(turns):
            return program.wait() or 1
        turns += 1
        passed = time.monotonic() - start
        if passed > marks[len(seen)]:
            parts = resident_mib(process)
            seen.append(sum(parts))
            told = " + ".join(f"{part:.1f}" for part in parts)
            sys.stdout.write(f"{passed / 60:.1f} min, {turns} turns: {seen[-1]:.1f} MiB ({told})\n")
            sys.stdout.flush()
    program.kill()
    program.wait()
    return 1 if seen[-1] > seen[0] * _MOST else 0


def plain(command: list[str], environment: dict[str, str], seconds: float) -> int:
    """The soak line by line; how it ended."""
    program = subprocess.Popen(
        [*command, "--plain"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    to, back = program.stdin, program.stdout
    assert to is not None
    assert back is not None

    def ask(turn: int) -> bool:
        if turn % _TURNS == 0:
            to.write(b"/new\n")
        to.write(f"Question {turn}: one word?\n".encode())
        to.flush()
        return bool(back.readline())

    return watch(program, seconds, ask)


def screen(command: list[str], environment: dict[str, str], seconds: float) -> int:
    """The soak of the application; how it ended."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    program = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)

    def quiet() -> bool:
        """Read what is drawn until nothing more is."""
        while select.select([ours], [], [], _QUIET_S)[0]:
            try:
                os.read(ours, 1 << 16)
            except OSError:
                return False
        return program.poll() is None

    def ask(turn: int) -> bool:
        if turn % _TURNS == 0:
            os.write(ours, b"/new\r")
            quiet()
        os.write(ours, f"Question {turn}: one word?\r".encode())
        return quiet()

    while not select.select([ours], [], [], 1)[0]:
        pass
    quiet()
    time.sleep(_QUIET_S * 20)  # the model loads behind the first paint
    return watch(program, seconds, ask)


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--screen", action="store_true")
    options = parser.parse_args()
    command = python_command("-m", "q35chat", "chat", "--model-dir", str(options.bundle))
    with tempfile.TemporaryDirectory() as home:
        folders = {f"XDG_{name}_HOME": home for name in ("DATA", "STATE", "CONFIG")}
        environment = python_environment() | folders | {"TERM": "xterm-256color"}
        run = screen if options.screen else plain
        return run(command, environment, options.minutes * 60)


if __name__ == "__main__":
    sys.exit(main())
