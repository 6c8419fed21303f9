"""Numbers as every text of the program writes them: counts, sizes, percentiles. A leaf."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, noun: str, plural: str = "") -> str:
    """A whole number and what it counts: `1 turn`, `1,024 turns`."""
    whole = round(number)
    return f"{whole:,} {noun if whole == 1 else plural or f'{noun}s'}"


def turns_said(turns: int) -> str:
    """How long a chat is, by its questions; one without any was begun from a summary."""
    return counted(turns, "turn") if turns else "from a summary"


def readable_size(count_of_bytes: float) -> str:
    """Bytes in the largest binary unit that keeps the number at least 1: "3.2 GiB"."""
    size = float(count_of_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{count_of_bytes:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of `values`, of which there is at least one, that at least `percent` % of them
    do not exceed."""
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1]
