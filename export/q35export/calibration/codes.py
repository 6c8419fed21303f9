"""The rounded matrices of a checkpoint in a folder, each by its name in the graph.

Owns how a matrix is rounded piece by piece and how its codes lie on the disk; knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from q35export.calibration.feedback import Feedback, round_rows
from q35export.matrix import Float32, Matrix
from q35export.precision import StoredAs, fine_name, left_over
from q35export.quantize import BlockFormat, Codes, dequantize, quantize

_PIECE_VALUES = 1 << 20
"""So many fit into a processor's own cache with their blocks."""
_NAME = re.compile(r"(.+)\.(\d+)-(\d+)-(\d+)\.npy")


class CodesFolder:
    """Takes weights and keeps codes in `folder`, where those of an earlier run count, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def round(self, name: str, weights: Matrix, fmt: BlockFormat, *feedbacks: Feedback) -> None:
        """Round a matrix and write it: without feedback to nearest, with several each share of its
        rows by its own."""
        shape = (weights.n, fmt.blocks(weights.k), fmt.block_bytes())
        stem = str(self.folder / name.replace("/", " "))
        made = Path(f"{stem}.codes.new")
        codes = np.lib.format.open_memmap(made, mode="w+", dtype=np.uint8, shape=shape)
        scales = np.empty(shape[:2], np.float32)
        share = weights.n // max(1, len(feedbacks))
        for start, stop in weights.spans(_PIECE_VALUES):
            rows = weights.rows(start, stop)
            own = feedbacks[start // share] if feedbacks else None
            found = quantize(rows, fmt) if own is None else round_rows(rows, own, fmt)
            codes[start:stop], scales[start:stop] = found
        codes.flush()
        np.save(f"{stem}.scales.npy", scales)
        made.replace(f"{stem}.{fmt.bits}-{fmt.block}-{fmt.accuracy_level}.npy")

    def round_left_over(self, name: str, weights: Matrix) -> None:
        """Round what is missing of a matrix that is rounded already, and write it beside."""
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
        stored = self.stored()[name]
        assert stored.read is not None
        codes, scales = stored.read()
        return dequantize(codes[start:stop], scales[start:stop], width, stored.fmt)

    def forget(self, name: str) -> None:
        """Delete a matrix."""
        for path in self.folder.glob(f"{name.replace('/', ' ')}.*.npy"):
            path.unlink()

    def stored(self) -> dict[str, StoredAs]:
        """What lies in the folder, by name."""
        found = {}
        for path in sorted(self.folder.glob("*.npy")):
            if kind := _NAME.fullmatch(path.name):
                name, *numbers = kind.groups()
                read = partial(_read, path, path.with_name(f"{name}.scales.npy"))
                fmt = BlockFormat(*map(int, numbers))
                found[name.replace(" ", "/")] = StoredAs(fmt, read)
        return found


def _read(codes: Path, scales: Path) -> tuple[Codes, Float32]:
    return np.load(codes, mmap_mode="r"), np.load(scales)
