"""Spends a budget of bits on the matrices where they lower the divergence most.

Knows matrices by name, size and what their rounding costs; who measured that is `sensitivity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from q35export.calibration.layers import Projection
from q35export.quantize import BlockFormat

_FEW_BITS, _MANY_BITS = 4, 8


@dataclass(frozen=True, slots=True)
class _Step:
    """A matrix takes a larger format: bytes more, and what of the divergence goes away."""

    name: str
    fmt: BlockFormat
    size: int
    gain: float

    @property
    def order(self) -> tuple[float, str, int]:
        """Most for its bytes first."""
        return -self.gain / self.size, self.name, self.size


def allocate(
    matrices: Sequence[Projection], costs: Mapping[str, float], bits: float
) -> dict[str, BlockFormat]:
    """The format of each matrix whose format changes, so that all together take at most `bits` bits
    a weight, scales included.

    `costs` are the divergences that the matrices make in the formats they have now, by name; where
    there are none each weight counts the same.
    """
    chosen: dict[str, BlockFormat] = {}
    weights = sum(one.weights.n * one.weights.k for one in matrices)
    left = int(weights * bits / 8) - sum(one.size for one in matrices)
    steps = [step for one in matrices for step in _steps(one, costs)]
    for step in sorted(steps, key=lambda step: step.order):
        if step.size <= left:
            left -= step.size
            chosen[step.name] = step.fmt
    return chosen


def has_room(matrices: Sequence[Projection], bits: float) -> bool:
    """Whether any of the matrices can take a larger format within so many bits a weight."""
    return bool(allocate(matrices, {}, bits))


def _steps(one: Projection, costs: Mapping[str, float]) -> Iterator[_Step]:
    """Eight bits in place of four. Smaller blocks leave nine tenths of the divergence, and read for
    it half a bit a weight, as a kernel has them in memory: less than eight bits are worth."""
    n, k, fmt = one.weights.n, one.weights.k, one.fmt
    if fmt.bits != _FEW_BITS:
        return
    larger = BlockFormat(_MANY_BITS, fmt.block)
    cost = costs.get(one.name, 0.0) if costs else float(n * k)
    yield _Step(one.name, larger, larger.size(n, k) - one.size, cost)


def described(formats: Mapping[str, BlockFormat]) -> str:
    """The formats in one line: "8 bits in blocks of 128: down of layers 0 1 5, embed_tokens; …"."""
    names: dict[BlockFormat, list[str]] = {}
    for name, fmt in formats.items():
        names.setdefault(fmt, []).append(name)
    return "; ".join(
        f"{fmt.bits} bits in blocks of {fmt.block}: {listed(names[fmt])}"
        for fmt in sorted(names, key=lambda fmt: (-fmt.bits, fmt.block))
    )


def listed(names: Iterable[str]) -> str:
    """Matrices by their names in the graph: "down of layers 0 1 5, embed_tokens"."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        place, _, kind = name.rpartition("/")
        layer = place.removeprefix("layer_")
        kinds.setdefault(kind, []).extend([layer] if layer.isdecimal() else [])
    return ", ".join(
        kind + (f" of layers {' '.join(sorted(layers, key=int))}" if layers else "")
        for kind, layers in sorted(kinds.items())
    )
