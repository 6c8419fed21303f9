"""`python -m tests.benchmarks.help_time`: seconds until `q35chat --help` is printed.

Measured beside `python -c pass` in the same run, alternately, after one warm-up each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "q35chat --help": ["-c", "from q35chat.cli import main; main()", "--help"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one interpreter run."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print a line a command: the median and the slowest."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS + 1):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    for name, measured in times.items():
        warm = measured[1:]
        middle, slowest = statistics.median(warm), max(warm)
        sys.stdout.write(f"{name:16} median {middle:.3f} s, slowest {slowest:.3f} s\n")


if __name__ == "__main__":
    main()
