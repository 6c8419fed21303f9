"""transformers, with the checkpoint as it is."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from tests.benchmarks.peers.peer import Numbers, Task, ids, worker
from tests.benchmarks.quality.reference import Reference

MODULE = "tests.benchmarks.peers.torch_peer"


@dataclass(frozen=True, slots=True)
class Transformers:
    """One dtype, fp32 or bf16; there is no int4."""

    task: Task
    dtype: str = "fp32"

    @property
    def name(self) -> str:
        """Program and dtype."""
        return f"transformers {self.dtype}"

    def missing(self) -> str:
        """How to get it."""
        return "" if find_spec("torch") and find_spec("transformers") else "pip install torch"

    def prepare(self) -> None:
        """Nothing: it reads the checkpoint."""

    def divergence(self, _reference: Reference) -> None:
        """Not measured: it is what others are measured against."""

    def measure(self) -> Numbers:
        """One round."""
        return worker(MODULE, self.task, self.dtype, str(self.task.checkpoint))


class Sequence:
    """The model with one sequence in its cache."""

    def __init__(self, checkpoint: str, dtype: str) -> None:
        import torch  # noqa: PLC0415
        from transformers import Qwen3_5ForConditionalGeneration  # noqa: PLC0415

        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self._torch = torch
        self._model = Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint, dtype=kind)
        self._model.eval()
        self._cache: Any = None

    def start(self, count: int) -> int:
        """Read a prompt of `count` tokens; the token that follows."""
        self._cache = None
        return self._run(self._torch.from_numpy(ids(count))[None])

    def step(self, token: int) -> int:
        """Read `token`; the token that follows."""
        return self._run(self._torch.tensor([[token]]))

    def _run(self, tokens: Any) -> int:
        with self._torch.inference_mode():
            output = self._model(
                input_ids=tokens, cache=self._cache, use_cache=True, logits_to_keep=1
            )
        self._cache = output.cache
        return int(output.logits[0, -1].argmax())


def main(lengths: list[int], dtype: str, checkpoint: str) -> None:
    """Be the process of one round."""
    import torch  # noqa: PLC0415

    threads, prompt, context, tokens, first = lengths
    torch.set_num_threads(threads)
    sequence = Sequence(checkpoint, dtype)
    sequence.step(sequence.start(16))
    seconds = []
    for length in (prompt, first):
        started = perf_counter()
        sequence.start(length)
        seconds.append(perf_counter() - started)
    token = sequence.start(context)
    started = perf_counter()
    for _ in range(tokens):
        token = sequence.step(token)
    decode = perf_counter() - started
    print(json.dumps({"prefill_s": seconds[0], "decode_s": decode, "first_s": seconds[1]}))


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:6]], sys.argv[6], sys.argv[7])
