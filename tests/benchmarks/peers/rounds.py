"""Rounds in alternation, A B A B, and what they add up to: medians, and ratios of paired rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from tests.benchmarks.peers.peer import Numbers, Peer

HEADINGS = {
    "prefill": "prefill tok/s",
    "decode": "decode tok/s",
    "first_ms": "first token ms",
    "peak_mb": "peak MB",
}
Rounds = Mapping[str, Sequence[Numbers]]


def alternate(peers: Sequence[Peer], repeat: int) -> Iterator[tuple[str, Numbers]]:
    """Every peer once, then every peer again: what disturbs the machine disturbs them all."""
    for _ in range(repeat):
        for peer in peers:
            yield peer.name, peer.measure()


def medians(rounds: Sequence[Numbers]) -> Numbers:
    """Each number on its own."""
    return Numbers(
        *(statistics.median(getattr(r, f.name) for r in rounds) for f in fields(Numbers))
    )


def ratios(ours: Sequence[Numbers], theirs: Sequence[Numbers]) -> Numbers:
    """How many times theirs ours is, as the median over the rounds, each with its own pair."""
    pairs = list(zip(ours, theirs, strict=False))
    return Numbers(
        *(
            statistics.median(getattr(a, f.name) / getattr(b, f.name) for a, b in pairs)
            for f in fields(Numbers)
        )
    )


def table(rounds: Rounds, divergences: Mapping[str, float]) -> Iterator[str]:
    """Markdown: medians with the divergences that are known, then the ratios of the first to each
    of the others."""
    yield "| | " + " | ".join((*HEADINGS.values(), "KLD")) + " |"
    yield "|---" * (len(HEADINGS) + 2) + "|"
    for name, measured in rounds.items():
        known = divergences.get(name)
        yield _row(
            name, medians(measured), ",.1f", "not measured" if known is None else f"{known:.4f}"
        )
    (first, ours), *others = rounds.items()
    for name, theirs in others:
        pair = divergences.get(first), divergences.get(name)
        ratio = f"{pair[0] / pair[1]:.3f}" if pair[0] is not None and pair[1] else ""
        yield _row(f"{first} / {name}", ratios(ours, theirs), ".3f", ratio)


def _row(name: str, numbers: Numbers, kind: str, divergence: str) -> str:
    cells = (format(getattr(numbers, heading), kind) for heading in HEADINGS)
    return f"| {name} | " + " | ".join((*cells, divergence)) + " |"
