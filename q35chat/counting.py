"""Numbers with their nouns, as every text of the program writes them. A leaf: knows nothing."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str = "") -> str:
    """A whole number and what it counts: `1 turn`, `1,024 turns`."""
    whole = round(number)
    return f"{whole:,} {noun if whole == 1 else plural or f'{noun}s'}"
