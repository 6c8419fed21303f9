"""llama.cpp through llama-bench, with the checkpoint as GGUF.

The folder of its sources comes from PyPI, inside the sdist `llama-cpp-python`; see HOW.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.peer import Numbers, Task, build, run
from tests.benchmarks.quality.reference import Reference

KINDS = {"int4": ("Q4_K_M", "Q4_0"), "int8": ("Q8_0",)}
"""The quantisations that stand beside ours of a precision."""
HOW = (
    "pip download --no-deps --no-binary :all: llama-cpp-python; unpack it; cd vendor/llama.cpp; "
    "cmake -B build -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF; "
    "cmake --build build --target llama-bench llama-quantize llama-perplexity llama-imatrix; "
    "then --llama-cpp that folder"
)


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """One quantisation; `sources` is the folder of llama.cpp with its `build`."""

    task: Task
    sources: Path | None
    kind: str

    @property
    def name(self) -> str:
        """Program and quantisation."""
        return f"llama.cpp {self.kind}"

    def missing(self) -> str:
        """How to get its tools, and what converts a checkpoint."""
        if self.sources is None or not (self.sources / "convert_hf_to_gguf.py").is_file():
            return HOW
        return "" if self._tool("llama-bench") and self._tool("llama-quantize") else HOW

    def prepare(self) -> None:
        """The checkpoint in 16 bits, then quantised."""
        full, small = self.task.work / "f16.gguf", self._model
        to_gguf = "tests.benchmarks.peers.to_gguf"
        if not small.exists():
            sources, checkpoint = str(self.sources), str(self.task.checkpoint)
            build([sys.executable, "-m", to_gguf, sources, checkpoint, str(full)], full)
            build([self._tool("llama-quantize"), str(full), str(small), self.kind], small)

    def measure(self) -> Numbers:
        """One round."""
        return measured(self._tool("llama-bench"), self._model, self.task)

    def divergence(self, reference: Reference) -> float:
        """Mean KLD of the file."""
        return reference.of_gguf(self._model).mean

    @property
    def _model(self) -> Path:
        return self.task.work / f"{self.kind}.gguf"

    def _tool(self, name: str) -> str:
        """Where a tool is: built in the sources, or on PATH; empty where it is not."""
        folder = "" if self.sources is None else str(self.sources / "build" / "bin")
        return shutil.which(name, path=os.pathsep.join([folder, os.environ.get("PATH", "")])) or ""


def measured(tool: str, model: Path, task: Task) -> Numbers:
    """Two runs: the two prompts, and the steps behind the context."""
    prompts = f"{task.prompt},{task.first}"
    reads, peak = _bench(tool, model, task, "-p", prompts, "-n", "0")
    lengths = ("-p", "0", "-n", str(task.tokens), "-d", str(task.context))
    steps, other_peak = _bench(tool, model, task, *lengths)
    return Numbers(
        speed(reads, task.prompt, 0),
        speed(steps, 0, task.tokens),
        task.first / speed(reads, task.first, 0) * 1e3,
        max(peak, other_peak),
    )


def _bench(tool: str, model: Path, task: Task, *lengths: str) -> tuple[list[dict[str, Any]], float]:
    common = ["-m", str(model), "-t", str(task.threads), "-r", "1", "-o", "json"]
    text, peak = run([tool, *common, *lengths])
    found: list[dict[str, Any]] = json.loads(text)
    return found, peak


def speed(tests: list[dict[str, Any]], prompt: int, generated: int) -> float:
    """Tokens per second of one of llama-bench's tests."""
    (found,) = (
        test["avg_ts"] for test in tests if (test["n_prompt"], test["n_gen"]) == (prompt, generated)
    )
    return float(found)
