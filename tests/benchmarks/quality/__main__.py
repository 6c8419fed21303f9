"""`python -m tests.benchmarks.quality --checkpoint DIR --llama-cpp DIR`: what each format keeps.

Ours and llama.cpp's formats of one checkpoint over one text, each against its own program's
32-bit model: Kullback-Leibler divergence, equal first choices, perplexity.
`python -m tools.language_model` makes a checkpoint with something to lose. Models are made once and
kept in `--work`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from q35export.calibration.text import BUILT_IN
from tests.benchmarks.quality.divergence import Divergence, divergence
from tests.benchmarks.quality.llama_cpp import KINDS, LlamaCpp
from tests.benchmarks.quality.ours import FORMATS, exported, logits, weight_bytes

HEADINGS = ("MB", "bits a weight", "KLD mean", "median", "p99", "top-1", "perplexity")


def main() -> None:
    """Make what is missing, measure, print a table."""
    asked = _arguments()
    work: Path = asked.work or asked.checkpoint.with_name(f"{asked.checkpoint.name}-quality")
    work.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"| | {' | '.join(HEADINGS)} |\n|---{'|---' * len(HEADINGS)}|\n")
    for name, size, bits, found in _rows(asked, work.resolve()):
        figures = f"{found.mean:.4f} | {found.median:.4f} | {found.p99:.3f} | {found.top_1:.3f}"
        sys.stdout.write(
            f"| {name} | {size / 1e6:.1f} | {bits:.2f} | {figures} | {found.perplexity:.3f} |\n"
        )
        sys.stdout.flush()


def _rows(asked: argparse.Namespace, work: Path) -> Iterator[tuple[str, int, float, Divergence]]:
    """Name, bytes of the weights, bits a weight and divergence of each format."""
    checkpoint = asked.checkpoint.resolve()
    llama = LlamaCpp(asked.llama_cpp.resolve(), work, asked.threads)
    full = llama.base(checkpoint)
    windows = llama.tokens(full, asked.text.resolve(), asked.window, asked.windows)
    bundle = exported(checkpoint, "fp32", work, asked.calibration, asked.window)
    weights = weight_bytes(bundle) // 4
    # The last row of a window predicts a token that is not there.
    kept = logits(bundle, windows)[:, :-1]
    wanted = kept.reshape(-1, kept.shape[-1])
    following = windows[:, asked.window // 2 + 1 :].ravel()
    for name in [name for name in FORMATS if name != "fp32"]:
        bundle = exported(checkpoint, name, work, asked.calibration, asked.window)
        found = logits(bundle, windows)[:, :-1].reshape(wanted.shape)
        size = weight_bytes(bundle)
        yield f"ours {name}", size, size * 8 / weights, divergence(wanted, found, following)
    for kind in (*KINDS, "Q4_K_M imatrix"):
        text = asked.calibration if kind.endswith("imatrix") else None
        model = llama.quantised(full, kind.split()[0], text)
        size = model.stat().st_size
        yield f"llama.cpp {kind}", size, size * 8 / weights, llama.divergence(model, asked.window)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="its folder, with its build")
    parser.add_argument("--text", type=Path, required=True, help="what is measured on")
    parser.add_argument("--calibration", type=Path, default=BUILT_IN, help="another text")
    parser.add_argument("--work", type=Path, help="where the models are kept")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--windows", type=int, default=16, help="at most")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
