"""`python -m tests.benchmarks.quality --checkpoint DIR --llama-cpp DIR --text FILE`: what each
format keeps, and how fast it is.

Ours and llama.cpp's formats of one checkpoint over one text, each against its own program's
32-bit model: Kullback-Leibler divergence, equal first choices, perplexity. Then the same files in
alternation, `--rounds` times: decode steps and a prefill. `python -m tools.language_model` makes a
checkpoint with something to lose. Models are made once and kept in `--work`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from q35chat.bench.traffic import weight_bytes
from tests.benchmarks.peers import llama_cpp as theirs
from tests.benchmarks.peers import ours
from tests.benchmarks.peers.peer import Numbers, Task
from tests.benchmarks.peers.rounds import medians
from tests.benchmarks.quality.divergence import Divergence
from tests.benchmarks.quality.llama_cpp import KINDS
from tests.benchmarks.quality.ours import FORMATS, exported, text_graph
from tests.benchmarks.quality.reference import Reference

HEADINGS = (
    "MB a step", "bits a weight", "KLD mean", "median", "p99", "top-1", "perplexity",
    "decode tok/s", "prefill tok/s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """A file that was made: its bytes, what measures its divergence and one round of its speed."""

    name: str
    size: int
    divergence: Callable[[], Divergence]
    speed: Callable[[], Numbers]


def main() -> None:
    """Make what is missing, measure, print a table."""
    asked = _arguments()
    work: Path = asked.work or asked.checkpoint.with_name(f"{asked.checkpoint.name}-quality")
    work.mkdir(parents=True, exist_ok=True)
    task = Task(
        checkpoint=asked.checkpoint.resolve(),
        work=work.resolve(),
        precision="int4",
        threads=asked.threads,
        prompt=512,
        context=100,
        tokens=64,
        first=200,
    )
    reference = Reference.make(
        task.checkpoint,
        asked.llama_cpp.resolve(),
        task.work,
        asked.text.resolve(),
        windows=asked.windows,
        threads=task.threads,
    )
    weights = weight_bytes(text_graph(reference.bundle)) // 4
    formats = list(_formats(asked, task, reference))
    found = {}
    for one in formats:
        found[one.name] = one.divergence()
        sys.stderr.write(f"{one.name}: {found[one.name]}\n")
    rounds: dict[str, list[Numbers]] = {one.name: [] for one in formats}
    for _ in range(asked.rounds):
        for one in formats:
            rounds[one.name].append(one.speed())
            sys.stderr.write(f"{one.name}: {rounds[one.name][-1]}\n")
    sys.stdout.write(f"| | {' | '.join(HEADINGS)} |\n|---{'|---' * len(HEADINGS)}|\n")
    for one in formats:
        sys.stdout.write(row(one, weights, found[one.name], rounds[one.name]) + "\n")


def row(one: Format, weights: int, found: Divergence, rounds: list[Numbers]) -> str:
    """A line of the table; speeds are medians, none without rounds."""
    cells = [
        f"{one.size / 1e6:.1f}",
        f"{one.size * 8 / weights:.2f}",
        f"{found.mean:.3g}",
        f"{found.median:.3g}",
        f"{found.p99:.3g}",
        f"{found.top_1:.4f}",
        f"{found.perplexity:.3f}",
    ]
    speed = medians(rounds) if rounds else None
    cells += ["", ""] if speed is None else [f"{speed.decode:.1f}", f"{speed.prefill:.1f}"]
    return f"| {one.name} | {' | '.join(cells)} |"


def _formats(asked: argparse.Namespace, task: Task, reference: Reference) -> Iterator[Format]:
    text = asked.calibration and asked.calibration.resolve()
    for name in FORMATS:
        if name == "fp32" or (asked.only and name not in asked.only):
            continue
        bundle = exported(task.checkpoint, name, task.work, text)
        yield Format(
            f"ours {name}",
            weight_bytes(text_graph(bundle)),
            partial(reference.of_bundle, bundle),
            partial(ours.measured, bundle, task),
        )
    tools = reference.tools
    for kind in (*KINDS, "Q4_K_M imatrix"):
        if asked.only and kind not in asked.only:
            continue
        calibration = None
        if kind.endswith("imatrix"):
            calibration = tools.plain(task.checkpoint, text)
        model = tools.quantised(reference.full, kind.split()[0], calibration)
        yield Format(
            f"llama.cpp {kind}",
            tools.weight_bytes(model),
            partial(reference.of_gguf, model),
            partial(theirs.measured, tools.tool("llama-bench"), model, task),
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="its folder, with its build")
    parser.add_argument("--text", type=Path, required=True, help="what is measured on")
    parser.add_argument("--calibration", type=Path, help="another text than our own")
    parser.add_argument("--work", type=Path, help="where the models are kept")
    parser.add_argument("--windows", type=int, default=16, help="at most, 512 tokens each")
    parser.add_argument("--only", nargs="*", default=[], help="names of formats")
    parser.add_argument("--rounds", type=int, default=0, help="of speed, on a quiet machine")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
