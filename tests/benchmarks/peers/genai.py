"""onnxruntime-genai, with a model that its own builder makes of the checkpoint."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.benchmarks.peers.peer import Numbers, Task, build, ids, worker
from tests.benchmarks.quality.reference import Reference

MODULE = "tests.benchmarks.peers.genai"
OPTIONS = ("block_size=32", "accuracy_level=4", "prune_lm_head=true", "exclude_mtp=true")


@dataclass(frozen=True, slots=True)
class Genai:
    """One precision."""

    task: Task

    @property
    def name(self) -> str:
        """Program and precision."""
        return f"onnxruntime-genai {self.task.precision}"

    def missing(self) -> str:
        """How to get it; its builder needs torch."""
        here = find_spec("onnxruntime_genai") and find_spec("torch")
        return "" if here else "pip install onnxruntime-genai torch"

    def prepare(self) -> None:
        """Run its builder."""
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        command += ["-m", str(self.task.checkpoint), "-o", str(self._model), "-e", "cpu"]
        command += ["-p", self.task.precision, "-c", str(self.task.work / "cache")]
        build([*command, "--extra_options", "hf_token=false", *OPTIONS], self._model)

    def divergence(self, _reference: Reference) -> None:
        """Not measured: its logits do not leave it."""

    def measure(self) -> Numbers:
        """One round."""
        return worker(MODULE, self.task, str(self._model))

    @property
    def _model(self) -> Path:
        return self.task.work / f"genai-{self.task.precision}"


class Sequences:
    """Its model, and new sequences in it."""

    def __init__(self, path: str, threads: int) -> None:
        self._library: Any = __import__("onnxruntime_genai")
        config = self._library.Config(path)
        session = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
        self._model = self._library.Model(config)

    def start(self, length: int) -> Any:
        """A sequence of at most `length` tokens that no token ends."""
        parameters = self._library.GeneratorParams(self._model)
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        return self._library.Generator(self._model, parameters)


def main(lengths: list[int], path: str) -> None:
    """Be the process of one round."""
    threads, prompt, context, tokens, first = lengths
    sequences = Sequences(path, threads)
    _first_token(sequences, 16)
    prefill = _first_token(sequences, prompt)
    short = _first_token(sequences, first)
    sequence = sequences.start(context + tokens + 2)
    sequence.append_tokens(ids(context).astype("int32"))
    sequence.generate_next_token()  # chosen from the logits that are there
    started = perf_counter()
    for _ in range(tokens):
        sequence.generate_next_token()
    decode = perf_counter() - started
    print(json.dumps({"prefill_s": prefill, "decode_s": decode, "first_s": short}))


def _first_token(sequences: Sequences, length: int) -> float:
    sequence = sequences.start(length + 2)
    started = perf_counter()
    sequence.append_tokens(ids(length).astype("int32"))
    sequence.generate_next_token()
    return perf_counter() - started


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:6]], sys.argv[6])
