"""The exact model over a text, and how far others lie from it: ours and llama.cpp's alike, each
against its own program's 32-bit model and on the same tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.quality.divergence import Divergence, Float32, Int64, divergence
from tests.benchmarks.quality.llama_cpp import LlamaTools
from tests.benchmarks.quality.ours import exported, logits

WINDOW = 512
"""Tokens of a window; its second half is looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Windows `[windows, WINDOW]`, the exact logits of their second halves but the last token's,
    which predicts one that is not there, and llama.cpp's 32-bit model `full`."""

    tools: LlamaTools
    full: Path
    bundle: Path
    windows: Int64
    wanted: Float32

    @classmethod
    def make(
        cls, checkpoint: Path, sources: Path, work: Path, text: Path, *, windows: int, threads: int
    ) -> Reference:
        """Of a checkpoint and at most so many windows of a text; what is made is kept in `work`."""
        tools = LlamaTools(sources, work, threads)
        full = tools.base(checkpoint)
        tokens = tools.tokens(full, text, WINDOW, windows)
        bundle = exported(checkpoint, "fp32", work)
        return cls(tools, full, bundle, tokens, logits(bundle, tokens))

    def of_bundle(self, bundle: Path) -> Divergence:
        """How far a bundle lies from the exact one."""
        following = self.windows[:, WINDOW // 2 + 1 :].ravel()
        return divergence(self.wanted, logits(bundle, self.windows), following)

    def of_gguf(self, model: Path) -> Divergence:
        """How far a GGUF file lies from llama.cpp's exact one."""
        return self.tools.divergence(model, WINDOW)
