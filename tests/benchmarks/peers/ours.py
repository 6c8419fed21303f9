"""q35chat itself, through `q35chat bench`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.peer import Numbers, Task, build, run
from tests.benchmarks.quality.reference import Reference


@dataclass(frozen=True, slots=True)
class Ours:
    """The bundle of one precision."""

    task: Task

    @property
    def name(self) -> str:
        """Program and precision."""
        return f"q35chat {self.task.precision}"

    def missing(self) -> str:
        """It is here."""
        return ""

    def prepare(self) -> None:
        """Export the bundle."""
        task = self.task
        build(
            [
                *(sys.executable, "-m", "q35chat", "export", str(task.checkpoint)),
                *("--out", str(self._bundle), "--target", "cpu", "--no-verify"),
                *("--precision", task.precision),
            ],
            self._bundle,
        )

    def measure(self) -> Numbers:
        """One round."""
        return measured(self._bundle, self.task)

    def divergence(self, reference: Reference) -> float:
        """Mean KLD of the bundle."""
        return reference.of_bundle(self._bundle).mean

    @property
    def _bundle(self) -> Path:
        return self.task.work / f"q35chat-{self.task.precision}"


def measured(bundle: Path, task: Task) -> Numbers:
    """The numbers of two runs: with the prompt, and with the short one."""
    whole = _bench(bundle, task, prompt=task.prompt, tokens=task.tokens, context=task.context)
    short = _bench(bundle, task, prompt=task.first, tokens=1, context=1)
    return Numbers(
        whole["prefill"][0]["tokens_per_s"]["median"],
        whole["decode"][0]["tokens_per_s"]["median"],
        short["prefill"][0]["first_token_ms"]["median"],
        whole["memory"]["after"]["peak"] / 1e6,
    )


def _bench(bundle: Path, task: Task, **lengths: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "q35chat", "bench", "--json", "--repeat", "1"]
    command += ["--model-dir", str(bundle), "--threads", str(task.threads)]
    for name, length in lengths.items():
        command += [f"--{name}", str(length)]
    text, _ = run(command)
    found: dict[str, Any] = json.loads(text)
    return found
