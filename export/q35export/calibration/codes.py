"""The rounded matrices of a checkpoint in one file, each by its name in the graph.

Owns how a matrix is rounded piece by piece and where its codes lie: at the end of the file that
becomes the bundle's, so that they are written once. Knows no model.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from q35export.calibration.feedback import Feedback, round_rows
from q35export.matrix import Float32, Matrix
from q35export.precision import StoredAs, fine_name, left_over
from q35export.quantize import BlockFormat, Codes, dequantize, quantize
from q35export.weights import CodesAt, OpenSink, Stored

ROUNDED_FILE = "rounded.bin"
_INDEX = "rounded.json"
_PIECE_VALUES = 1 << 20
"""So many fit into a processor's own cache with their blocks."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A matrix in the file: its format, rows and blocks of a row, and where codes and scales
    begin."""

    fmt: BlockFormat
    n: int
    blocks: int
    codes: int
    scales: int

    def at(self, path: Path) -> CodesAt:
        size = self.n * self.blocks
        return CodesAt(
            path,
            Stored(self.codes, size * self.fmt.block_bytes()),
            Stored(self.scales, size * np.dtype(np.float32).itemsize),
        )

    def read(self, path: Path) -> tuple[Codes, Float32]:
        """Mapped, so that a slice reads no more than itself."""
        shape = (self.n, self.blocks)
        codes = np.memmap(path, np.uint8, "r", self.codes, (*shape, self.fmt.block_bytes()))
        return codes, np.memmap(path, np.float32, "r", self.scales, shape)


class CodesFile:
    """Takes weights and keeps codes at the end of one file in `folder`.

    What an earlier run had there when it last was `keep_all`ed counts; `layers` tells how far it
    was. What came behind that is cut off.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._index = folder / ROUNDED_FILE, folder / _INDEX
        self.layers, size = 0, 0
        self._places: dict[str, _Place] = {}
        if self._index.is_file():
            found = json.loads(self._index.read_text(encoding="utf-8"))
            self.layers, size = found["layers"], found["size"]
            self._places = {name: _place(one) for name, one in found["matrices"].items()}
        self.path.touch()
        if self.path.stat().st_nlink > 1:  # a bundle that took its place has it, too
            made = self.path.with_suffix(".new")
            shutil.copyfile(self.path, made)
            made.replace(self.path)
        os.truncate(self.path, size)

    def keep_all(self, layers: int) -> None:
        """Have a later run go on behind so many layers with all that is here."""
        size = self.path.stat().st_size
        matrices = {name: asdict(place) for name, place in self._places.items()}
        told = {"layers": layers, "size": size, "matrices": matrices}
        made = self._index.with_suffix(".new")
        made.write_text(json.dumps(told), encoding="utf-8")
        made.replace(self._index)
        self.layers = layers

    def round(self, name: str, weights: Matrix, fmt: BlockFormat, *feedbacks: Feedback) -> None:
        """Round a matrix and write it: without feedback to nearest, with several each share of its
        rows by its own."""
        blocks = fmt.blocks(weights.k)
        scales = np.empty((weights.n, blocks), np.float32)
        share = weights.n // max(1, len(feedbacks))

        def pieces() -> Iterator[Codes]:
            for start, stop in weights.spans(_PIECE_VALUES):
                rows = weights.rows(start, stop)
                own = feedbacks[start // share] if feedbacks else None
                found = quantize(rows, fmt) if own is None else round_rows(rows, own, fmt)
                codes, scales[start:stop] = found
                yield codes

        with self.path.open("ab") as file:
            sink = OpenSink(file, self.path.name)
            codes = sink.store(scales.size * fmt.block_bytes(), pieces)
            behind = sink.store(scales.nbytes, lambda: iter((scales,)))
        self._places[name] = _Place(fmt, weights.n, blocks, codes.offset, behind.offset)

    def round_left_over(self, name: str, weights: Matrix) -> None:
        """Round what is missing of a matrix that is rounded already, and write it, too."""
        known = self.stored()[name]
        self.round(fine_name(name), left_over(weights, known), known.fmt)

    def beside(self, name: str, weights: Matrix) -> Iterator[tuple[Float32, Float32]]:
        """Some rows of a matrix at a time, exact and as they were rounded."""
        for start, stop in weights.spans():
            yield weights.rows(start, stop), self._rows(name, weights.k, start, stop)

    def rough(self, name: str, weights: Matrix) -> Iterator[Float32]:
        """The same rows as they were rounded, without the exact ones."""
        for start, stop in weights.spans():
            yield self._rows(name, weights.k, start, stop)

    def refined(self, name: str, weights: Matrix) -> Iterator[tuple[Float32, Float32]]:
        """As `beside`, what is left over of each row added."""
        for start, stop in weights.spans():
            rounded = self._rows(name, weights.k, start, stop)
            left = self._rows(fine_name(name), weights.k, start, stop)
            yield weights.rows(start, stop), rounded + left

    def _rows(self, name: str, width: int, start: int, stop: int) -> Float32:
        place = self._places[name]
        codes, scales = place.read(self.path)
        return dequantize(codes[start:stop], scales[start:stop], width, place.fmt)

    def forget(self, name: str) -> None:
        """Cut off the matrix that was rounded last."""
        os.truncate(self.path, self._places.pop(name).codes)

    def stored(self) -> dict[str, StoredAs]:
        """What lies in the file, by name."""
        return {
            name: StoredAs(place.fmt, partial(place.read, self.path), place.at(self.path))
            for name, place in self._places.items()
        }


def _place(told: dict[str, Any]) -> _Place:
    return _Place(**told | {"fmt": BlockFormat(**told["fmt"])})
