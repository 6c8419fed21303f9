"""What every peer answers: whether it is here, how to get it, and one round of measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.benchmarks.quality.reference import Reference


@dataclass(frozen=True, slots=True)
class Task:
    """What is measured, in tokens: a prefill of `prompt`, `tokens` decode steps behind `context`
    others, and the first token of a prompt of `first`. Models are made once, in `work`."""

    checkpoint: Path
    work: Path
    precision: str
    threads: int
    prompt: int
    context: int
    tokens: int
    first: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """One round: tokens per second, milliseconds, and megabytes of peak memory."""

    prefill: float
    decode: float
    first_ms: float
    peak_mb: float


class Peer(Protocol):
    """A program that runs the checkpoint."""

    @property
    def name(self) -> str:
        """Program and precision."""

    def missing(self) -> str:
        """How to install what is not here; empty where nothing is missing."""

    def prepare(self) -> None:
        """Make its model of the checkpoint, if that was not done."""

    def measure(self) -> Numbers:
        """One round, in a process of its own."""

    def divergence(self, reference: Reference) -> float | None:
        """Mean Kullback-Leibler divergence of its model; None where nobody can tell."""


def worker(module: str, task: Task, *more: str) -> Numbers:
    """Run `module`, which prints prefill_s, decode_s and first_s as JSON, in its own process."""
    lengths = map(str, (task.threads, task.prompt, task.context, task.tokens, task.first))
    text, peak_mb = run([sys.executable, "-m", module, *lengths, *more])
    seconds: dict[str, float] = json.loads(text.splitlines()[-1])
    return Numbers(
        task.prompt / seconds["prefill_s"],
        task.tokens / seconds["decode_s"],
        seconds["first_s"] * 1e3,
        peak_mb,
    )


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[str, float]:
    """What a command prints, and its peak memory in MB. Raises CalledProcessError."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | (environment or {}),
    )
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    unit = 1 if sys.platform == "darwin" else 1024
    return text, usage.ru_maxrss * unit / 1e6


def build(command: Sequence[str], made: Path) -> None:
    """Run a command that makes `made`, once: it works on another name until it is done."""
    if made.exists():
        return
    sys.stderr.write(f"making {made}\n")
    partial = made.with_name(f"partial-{made.name}")
    subprocess.run(
        [part.replace(str(made), str(partial)) for part in command],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    partial.rename(made)


def ids(count: int) -> Any:  # a numpy array; numpy is not needed to find out what is here
    """The same tokens of plain bytes for everyone."""
    import numpy as np  # noqa: PLC0415

    return np.random.default_rng(0).integers(0, 256, count)
