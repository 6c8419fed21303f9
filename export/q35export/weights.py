"""Where the weights of a graph are written: one external-data file, in one pass.

A sink receives each tensor once, in graph order, as pieces; it knows nothing of the model.
A plain `WeightSink` gives the sizes of a plan without reading a byte.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]
Pieces = Callable[[], Iterator[Array]]

# ONNX Runtime maps a tensor into memory only where its offset is a multiple of the page size.
ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes already in the file."""

    offset: int
    length: int


class WeightSink:
    """Takes tensors for external storage and adds up their sizes; never calls for the contents."""

    def __init__(self, location: str = "model.bin") -> None:
        self.size = 0
        self._location = location

    def store(self, length: int, pieces: Pieces) -> Stored:  # noqa: ARG002
        """Append a tensor of `length` bytes whose pieces, joined, are its C-order contents."""
        offset = _aligned(self.size)
        self.size = offset + length
        return Stored(offset, length)

    def tensor(
        self, name: str, stored: Stored, shape: tuple[int, ...], dtype: ir.DataType
    ) -> ir.ExternalTensor:
        """A graph tensor over stored bytes; several may share them."""
        return ir.ExternalTensor(
            self._location, stored.offset, stored.length, dtype, shape=ir.Shape(shape), name=name
        )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class FileSink(WeightSink):
    """Writes the file at `path`; `sha256` and `size` are final once it is closed.

    `on_bytes` is told after each piece how many bytes were written.
    """

    def __init__(self, path: Path, on_bytes: Callable[[int], None]) -> None:
        super().__init__(path.name)
        self._on_bytes = on_bytes
        self._digest = hashlib.sha256()
        self._file = path.open("wb")

    def __enter__(self) -> FileSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of everything written so far."""
        return self._digest.hexdigest()

    def store(self, length: int, pieces: Pieces) -> Stored:
        """Write the pieces at the next aligned offset; a wrong total is a ValueError."""
        self._write(bytes(_aligned(self.size) - self.size))
        offset = self.size
        for piece in pieces():
            self._write(np.ascontiguousarray(piece).data.cast("B") if piece.size else b"")
            self._on_bytes(piece.nbytes)
        if self.size - offset != length:
            raise ValueError(f"a tensor of {length} bytes came as {self.size - offset}")
        return Stored(offset, length)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)
