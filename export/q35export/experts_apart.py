"""Experts that a checkpoint stores one by one, seen as the tensors that the model has.

`mlp.experts.3.gate_proj.weight` and its like become rows of `mlp.experts.gate_up_proj` and
`mlp.experts.down_proj`, as transformers joins them when it loads. Reads slices; knows no widths.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from q35chat.errors import CheckpointError, Remedy
from q35export.safetensors_files import Float32, TensorEntry, read_rows

_SINGLE = re.compile(r"(.+\.mlp\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
_JOINED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


@dataclass(frozen=True, slots=True)
class ExpertsApart:
    """One tensor `[E, n, k]` in pieces: of each expert those that lie one below the other."""

    parts: tuple[tuple[TensorEntry, ...], ...]

    @property
    def path(self) -> Path:
        """The file of the first piece."""
        return self.parts[0][0].path

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the tensor, if all experts are as the first."""
        first = self.parts[0]
        return (len(self.parts), sum(part.shape[0] for part in first), *first[0].shape[1:])

    @property
    def dtype(self) -> str:
        """The element type of a piece, of an unreadable one where there is any."""
        pieces = [piece for parts in self.parts for piece in parts]
        return next((piece for piece in pieces if not piece.readable), pieces[0]).dtype

    @property
    def readable(self) -> bool:
        """Whether every piece can be read."""
        return all(piece.readable for parts in self.parts for piece in parts)

    def rows(self, start: int, stop: int) -> Float32:
        """`tensor[start:stop]`: some experts."""
        return np.stack(
            [
                np.concatenate([read_rows(piece, 0, piece.shape[0]) for piece in parts])
                for parts in self.parts[start:stop]
            ]
        )


def take_apart(entries: dict[str, TensorEntry]) -> dict[str, ExpertsApart]:
    """The tensors of all experts by canonical name, their pieces taken out of `entries`.

    Raises CheckpointError for a piece that is missing, or of another shape than those before it.
    """
    layers: dict[str, dict[tuple[int, str], TensorEntry]] = defaultdict(dict)
    for name in list(entries):
        if found := _SINGLE.fullmatch(name):
            root, expert, kind = found.groups()
            layers[root][int(expert), kind] = entries.pop(name)
    return {
        f"{root}.{joined}": ExpertsApart(_parts(root, kinds, pieces))
        for root, pieces in layers.items()
        for joined, kinds in _JOINED.items()
    }


def _parts(
    root: str, kinds: tuple[str, ...], pieces: Mapping[tuple[int, str], TensorEntry]
) -> tuple[tuple[TensorEntry, ...], ...]:
    count = 1 + max(expert for expert, _ in pieces)
    for expert in range(count):
        for kind in kinds:
            name, piece = f"{root}.{expert}.{kind}.weight", pieces.get((expert, kind))
            if piece is None:
                raise CheckpointError(
                    f"of the {count} experts of {root} the tensor {name} is missing",
                    Remedy.DOWNLOAD_AGAIN,
                )
            first = pieces[0, kinds[0]]
            if piece.shape != first.shape or len(piece.shape) != 2:
                raise CheckpointError(
                    f"{piece.path.name}: {name} has shape {list(piece.shape)}, the first of its "
                    f"layer {list(first.shape)}",
                    Remedy.DOWNLOAD_AGAIN,
                )
    return tuple(tuple(pieces[expert, kind] for kind in kinds) for expert in range(count))
