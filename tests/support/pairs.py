"""Fewer cases where factors are independent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turn(values: Sequence[T], *places: int) -> T:
    """The value for the places of a case in other lists: each list meets `values` in pairs, and not
    all lists one another."""
    return values[sum(places) % len(values)]
