"""`python -m tests.benchmarks.peers --checkpoint DIR`: q35chat against other programs.

All run the same checkpoint, such as `python -m tests.support.make_checkpoint --shape 0.8b --out
DIR` makes, in alternation and one process at a time. A peer that is not installed is named, with
the way to get it. Models are made once and kept in `--work`. Ctrl+C prints what there is. With
`--text FILE` the table has each one's divergence from the exact model on that text, without which a
speed says little.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.benchmarks.peers.genai import Genai
from tests.benchmarks.peers.llama_cpp import KINDS, LlamaCpp
from tests.benchmarks.peers.ours import Ours
from tests.benchmarks.peers.peer import Numbers, Peer, Task
from tests.benchmarks.peers.rounds import alternate, table
from tests.benchmarks.peers.torch_peer import Transformers
from tests.benchmarks.quality.reference import Reference


def main() -> None:
    """Prepare, measure, print."""
    asked = _arguments()
    work: Path = asked.work or asked.checkpoint.with_name(f"{asked.checkpoint.name}-peers")
    work.mkdir(parents=True, exist_ok=True)
    task = Task(
        checkpoint=asked.checkpoint.resolve(),
        work=work.resolve(),
        precision=asked.precision,
        threads=asked.threads,
        prompt=asked.prompt,
        context=asked.context,
        tokens=asked.tokens,
        first=asked.first_token,
    )
    peers = _present(_all(task, asked), asked.only)
    divergences = _divergences(task, peers, asked) if asked.text else {}
    rounds: dict[str, list[Numbers]] = {}
    try:
        for name, numbers in alternate(peers, asked.repeat):
            rounds.setdefault(name, []).append(numbers)
            _say(f"{name}: {numbers}")
    except KeyboardInterrupt:
        _say("stopped")
    if rounds:
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{task.prompt} / {task.tokens} behind {task.context} / {task.first} tokens, "
              f"{task.threads} threads, load average {load}")  # fmt: skip
        print("\n".join(table(rounds, divergences)))


def _all(task: Task, asked: argparse.Namespace) -> list[Peer]:
    return [
        Ours(task),
        *(
            LlamaCpp(task, asked.llama_cpp and asked.llama_cpp.resolve(), kind)
            for kind in KINDS[task.precision]
        ),
        Genai(task),
        Transformers(task, asked.transformers_dtype),
    ]


def _present(peers: list[Peer], only: list[str]) -> list[Peer]:
    """Those that are here and asked for, prepared; the others are named."""
    found = []
    for peer in peers:
        if only and not any(peer.name.startswith(word) for word in (*only, "q35chat")):
            continue
        if how := peer.missing():
            _say(f"not here: {peer.name}. To install it: {how}")
            continue
        peer.prepare()
        found.append(peer)
    return found


def _divergences(task: Task, peers: list[Peer], asked: argparse.Namespace) -> dict[str, float]:
    """Mean KLD by the peer's name, where it can be told."""
    sources, text = asked.llama_cpp.resolve(), asked.text.resolve()
    reference = Reference.make(
        task.checkpoint, sources, task.work, text, windows=asked.windows, threads=task.threads
    )
    found = {peer.name: peer.divergence(reference) for peer in peers}
    return {name: value for name, value in found.items() if value is not None}


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--precision", choices=("int4", "int8"), default="int4")
    parser.add_argument("--repeat", type=int, default=5, help="rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prefill")
    parser.add_argument("--tokens", type=int, default=64, help="decode steps")
    parser.add_argument("--context", type=int, default=100, help="tokens before the steps")
    parser.add_argument("--first-token", type=int, default=200, help="tokens of a short prompt")
    parser.add_argument("--work", type=Path, help="where the models are kept")
    parser.add_argument("--llama-cpp", type=Path, help="the folder of llama.cpp, with its build")
    parser.add_argument("--text", type=Path, help="measure divergences on it; needs --llama-cpp")
    parser.add_argument("--windows", type=int, default=2, help="of the text, 512 tokens each")
    parser.add_argument("--transformers-dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names of peers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
