"""Where the weights of a graph are written: one external-data file, in one pass.

A sink receives each tensor once as pieces; it knows nothing of the model. A plain `WeightSink`
gives the sizes of a plan without reading a byte. A file that holds some tensors already can be gone
on with, so that each byte is written once.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]
Pieces = Callable[[], Iterator[Array]]

# ONNX Runtime maps a tensor into memory only where its offset is a multiple of the page size.
ALIGNMENT = 4096
_READ_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes already in the file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class CodesAt:
    """Where codes and scales of one matrix lie in the file `path`."""

    path: Path
    codes: Stored
    scales: Stored


class WeightSink:
    """Takes tensors for external storage and adds up their sizes, each in whole pages; never calls
    for the contents."""

    def __init__(self, location: str = "model.bin") -> None:
        self.size = 0
        self.location = location

    def store(self, length: int, pieces: Pieces) -> Stored:  # noqa: ARG002
        """Append a tensor of `length` bytes whose pieces, joined, are its C-order contents."""
        stored = Stored(self.size, length)
        self.size = _aligned(self.size + length)
        return stored

    def holds(self, path: Path) -> bool:  # noqa: ARG002
        """Whether what lies in the file `path` is here, too, in the same places."""
        return False

    def tensor(
        self, name: str, stored: Stored, shape: tuple[int, ...], dtype: ir.DataType
    ) -> ir.ExternalTensor:
        """A graph tensor over stored bytes; several may share them."""
        return ir.ExternalTensor(
            self.location, stored.offset, stored.length, dtype, shape=ir.Shape(shape), name=name
        )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class OpenSink(WeightSink):
    """Appends to an open file that ends with a whole page.

    `on_bytes` is told after each piece how many bytes were written.
    """

    def __init__(
        self, file: BinaryIO, location: str, on_bytes: Callable[[int], None] = lambda _: None
    ) -> None:
        super().__init__(location)
        self.size = file.tell()
        self._file = file
        self._on_bytes = on_bytes

    def store(self, length: int, pieces: Pieces) -> Stored:
        """Write the pieces at the end; a wrong total is a ValueError."""
        offset = self.size
        for piece in pieces():
            self._write(np.ascontiguousarray(piece).data.cast("B") if piece.size else b"")
            self._on_bytes(piece.nbytes)
        if self.size - offset != length:
            raise ValueError(f"a tensor of {length} bytes came as {self.size - offset}")
        self._write(bytes(_aligned(self.size) - self.size))
        return Stored(offset, length)

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.size += len(data)


class MemorySink(OpenSink):
    """Keeps in memory what would be a file, for a graph that runs once."""

    def __init__(self, location: str) -> None:
        self._memory = io.BytesIO()
        super().__init__(self._memory, location)

    def contents(self) -> memoryview:
        """All of the file."""
        return self._memory.getbuffer()


class FileSink(OpenSink):
    """Writes the file at `path`; `sha256` and `size` are final once it is closed.

    `begun` is a file that it goes on with under its own name, read once for the digest; `on_bytes`
    is told of its bytes, too.
    """

    def __init__(
        self, path: Path, on_bytes: Callable[[int], None], begun: Path | None = None
    ) -> None:
        self._begun = begun
        self._digest = hashlib.sha256()
        if begun is not None:
            link(begun, path)
            with path.open("rb") as file:
                while piece := file.read(_READ_AT_ONCE):
                    self._digest.update(piece)
                    on_bytes(len(piece))
        super().__init__(path.open("wb" if begun is None else "ab"), path.name, on_bytes)

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

    def holds(self, path: Path) -> bool:
        """Whether it goes on with the file `path`."""
        return path == self._begun

    def _write(self, data: bytes | memoryview) -> None:
        super()._write(data)
        self._digest.update(data)


def link(source: Path, place: Path) -> None:
    """Give the file `source` another name, or copy it where the file system has no hard links."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copyfile(source, place)
