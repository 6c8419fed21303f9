"""`python -m tests.campaigns.soak BUNDLE [--minutes M]`: turns without a pause, and memory is flat.

Runs `chat --plain` over the bundle, a new chat every twenty turns, and prints its resident memory
as time passes: at a twelfth, at half and at the end, which are minutes 5, 30 and 60 of an hour.
Ends with 1 where the end is more than 2 % above the twelfth.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from q35chat.processes import python_command, python_environment

_TURNS = 20
_MOST = 1.02


def resident_mib(process: psutil.Process) -> float:
    """Memory of the program and of the child that makes its prompts."""
    every = (process, *process.children(recursive=True))
    return float(sum(one.memory_info().rss for one in every)) / (1 << 20)


def run(bundle: Path, seconds: float) -> int:
    """The soak; how it ended."""
    with tempfile.TemporaryDirectory() as home:
        program = subprocess.Popen(
            python_command("-m", "q35chat", "chat", "--plain", "--model-dir", str(bundle)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=python_environment() | {f"XDG_{name}_HOME": home for name in ("DATA", "STATE")},
        )
        assert program.stdin is not None
        assert program.stdout is not None
        process, start, turns = psutil.Process(program.pid), time.monotonic(), 0
        marks = [seconds / 12, seconds / 2, seconds]
        seen: list[float] = []
        while len(seen) < len(marks):
            if turns % _TURNS == 0:
                program.stdin.write(b"/new\n")
            program.stdin.write(f"Question {turns}: one word?\n".encode())
            program.stdin.flush()
            if not program.stdout.readline():
                return program.wait() or 1
            turns += 1
            passed = time.monotonic() - start
            if passed > marks[len(seen)]:
                seen.append(resident_mib(process))
                sys.stdout.write(f"{passed / 60:.1f} min, {turns} turns: {seen[-1]:.1f} MiB\n")
                sys.stdout.flush()
        program.stdin.close()
        program.kill()
        program.wait()
    return 1 if seen[-1] > seen[0] * _MOST else 0


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    return run(options.bundle, options.minutes * 60)


if __name__ == "__main__":
    sys.exit(main())
