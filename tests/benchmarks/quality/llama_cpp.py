"""llama.cpp's formats of a checkpoint, by its own tools: its base is its own 32-bit model.

`llama-perplexity` looks at the second half of each window, as we do, and the file that it keeps of
the base begins with the tokens, so that both sides read the same ones.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from q35export.calibration.text import BUILT_IN, read_windows
from tests.benchmarks.peers.peer import build
from tests.benchmarks.quality.divergence import Divergence, Int64

KINDS = ("Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q8_0")
_HEADER = 8  # bytes of its magic word, before three int32: window, vocabulary, windows


@dataclass(frozen=True, slots=True)
class LlamaTools:
    """`sources` is the folder of llama.cpp with its `build`; `work` keeps what is made."""

    sources: Path
    work: Path
    threads: int

    def base(self, checkpoint: Path) -> Path:
        """The checkpoint as GGUF in 32 bits."""
        full = self.work / "f32.gguf"
        script = [sys.executable, "-m", "tests.benchmarks.peers.to_gguf"]
        build([*script, str(self.sources), str(checkpoint), str(full), "f32"], full)
        return full

    def tokens(self, full: Path, text: Path, window: int, most: int) -> Int64:
        """The text as windows `[windows, window]`, at most `most`; the base's logits are kept."""
        kept = self.work / "base.kld"
        build(
            [
                *(self.tool("llama-perplexity"), "-m", str(full), "-f", str(text)),
                *("-c", str(window), "-b", str(window), "-t", str(self.threads)),
                *("--chunks", str(most), "--kl-divergence-base", str(kept)),
            ],
            kept,
        )
        with kept.open("rb") as file:
            file.seek(_HEADER)
            length, _, windows = np.fromfile(file, np.int32, 3)
            ids = np.fromfile(file, np.int32, length * windows)
        return ids.reshape(windows, length).astype(np.int64)

    def quantised(self, full: Path, kind: str, calibration: Path | None = None) -> Path:
        """The base in a format, with an importance matrix of the calibration text where given."""
        made = self.work / f"{kind}{' imatrix' if calibration else ''}.gguf"
        options = []
        if calibration:
            matrix = self.work / "imatrix.gguf"
            command = [self.tool("llama-imatrix"), "-m", str(full), "-f", str(calibration)]
            command += ["-o", str(matrix), "-t", str(self.threads), "-c", "512", "--parse-special"]
            build(command, matrix)
            options = ["--imatrix", str(matrix)]
        build([self.tool("llama-quantize"), *options, str(full), str(made), kind], made)
        return made

    def plain(self, checkpoint: Path, text: Path | None) -> Path:
        """The calibration text, our own without one, as the checkpoint reads it: conversations as
        its template spells them, without our marks."""
        from transformers import AutoTokenizer  # noqa: PLC0415

        made = self.work / "calibration.txt"
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        windows = read_windows(text or BUILT_IN, checkpoint, len(tokenizer))
        made.write_text("".join(tokenizer.decode(w.ids) for w in windows), encoding="utf-8")
        return made

    def weight_bytes(self, model: Path) -> int:
        """Bytes of the tensors of a file."""
        sys.path.insert(0, str(self.sources / "gguf-py"))
        gguf: Any = __import__("gguf")
        return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(model).tensors)

    def divergence(self, model: Path, window: int) -> Divergence:
        """What `llama-perplexity --kl-divergence` says of a model against the base."""
        command = [self.tool("llama-perplexity"), "-m", str(model), "-c", str(window)]
        command += ["-b", str(window), "-t", str(self.threads), "--kl-divergence"]
        command += ["--kl-divergence-base", str(self.work / "base.kld")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return parsed(done.stdout + done.stderr)

    def tool(self, name: str) -> str:
        """Where one of its programs is."""
        return str(self.sources / "build" / "bin" / name)


def parsed(said: str) -> Divergence:
    """The figures in what `llama-perplexity --kl-divergence` prints."""

    def number(label: str) -> float:
        found = re.search(rf"^{label}\s*:\s*(-?[\d.]+)", said, re.MULTILINE)
        if found is None:
            raise ValueError(f"llama-perplexity says nothing of {label!r}")
        return float(found[1])

    return Divergence(
        mean=number(r"Mean\s+KLD"),
        median=number(r"Median\s+KLD"),
        p99=number(r"99\.0%\s+KLD"),
        top_1=number(r"Same top p") / 100,
        perplexity=number(r"Mean PPL\(Q\)/PPL\(base\)"),
    )
