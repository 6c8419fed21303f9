"""One state as a file: arrays one after another, then where each of them lies, then a checksum.

Written beside its place and renamed, private, and mapped when it is read. What stands in a file are
numbers and their places; whatever is wrong with it, it is refused with a ValueError.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from q35chat import files
from q35chat.json_reader import parse_json

Array = npt.NDArray[Any]

PART: Final = ".part"
_MAGIC: Final = b"q35chat state 1\n"
_ALIGNMENT: Final = 64
_LENGTH: Final = 8
_MOST_INDEX: Final = 1 << 20
_DTYPES: Final = {
    np.dtype(kind).str: np.dtype(kind)
    for kind in (
        np.float16,
        np.float32,
        np.float64,
        np.bool_,
        np.int8,
        np.uint8,
        np.int32,
        np.int64,
    )
}


def write_state(
    path: Path, arrays: Iterable[tuple[str, Array]], may_go_on: Callable[[int], bool]
) -> bool:
    """Put `arrays` by name into the file `path`, one at a time, so that no copy of all is made.

    `may_go_on` is asked with the bytes written so far; where it says no, nothing is left and the
    answer is False. Raises OSError.
    """
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}{PART}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            files.lock(descriptor)  # as long as it is held, this is not what a dead process left
            whole = _write(_Checked(file.write), arrays, may_go_on)
            if whole:
                part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return whole


@contextmanager
def opened_state(path: Path) -> Iterator[Mapping[str, Array]]:
    """The arrays of the file `path`, views that cannot be written. The checksum is computed while
    they are used: what is made of them counts only where this ends without an error.

    Raises OSError, and ValueError for a file that is damaged or no state.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file, ThreadPoolExecutor(1) as hashing:
        size = _size(descriptor)
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        body, checksum = (
            mapped[: size - _checksum().digest_size],
            mapped[-_checksum().digest_size :],
        )
        found = hashing.submit(lambda: _checksum(body).digest())
        yield _arrays(body)
        if found.result() != checksum:
            raise ValueError("its checksum is not that of its content")


def first_array(path: Path, name: str) -> Array:
    """The array `name` of the file `path`, a copy, believed without a checksum.

    Raises OSError, and ValueError where there is none.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        size = _size(descriptor)
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        arrays = _arrays(mapped[: size - _checksum().digest_size])
        if name not in arrays:
            raise ValueError(f"it has no array {name!r}")
        return arrays[name].copy()


def _checksum(data: memoryview | bytes = b"") -> Any:  # noqa: ANN401  (hashlib's type is private)
    return hashlib.sha256(data)


class _Checked:
    """Writes, and computes the checksum of what is written in another thread meanwhile."""

    def __init__(self, write: Callable[[memoryview], int]) -> None:
        self._write = write
        self._digest = _checksum()
        self.count = 0

    def write(self, data: memoryview, hashing: ThreadPoolExecutor) -> None:
        hashed = hashing.submit(self._digest.update, data)
        self.put(data)
        hashed.result()

    def put(self, data: memoryview) -> None:
        """Write without counting it in."""
        while data:
            written = self._write(data)
            self.count += written
            data = data[written:]

    def digest(self) -> memoryview:
        return memoryview(self._digest.digest())


def _write(
    out: _Checked, arrays: Iterable[tuple[str, Array]], may_go_on: Callable[[int], bool]
) -> bool:
    index: list[dict[str, object]] = []
    with ThreadPoolExecutor(1) as hashing:
        out.write(memoryview(_MAGIC), hashing)
        for name, array in arrays:
            out.write(memoryview(bytes(-out.count % _ALIGNMENT)), hashing)
            if not may_go_on(out.count):
                return False
            spec = {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
            index.append(spec | {"offset": out.count})
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, hashing)
        told = json.dumps({"arrays": index}).encode()
        out.write(memoryview(told + len(told).to_bytes(_LENGTH, "little")), hashing)
    out.put(out.digest())
    return may_go_on(out.count)


def _size(descriptor: int) -> int:
    found = os.fstat(descriptor)
    least = len(_MAGIC) + _LENGTH + _checksum().digest_size
    if not stat.S_ISREG(found.st_mode) or found.st_size < least:
        raise ValueError("it is no file, or too short")
    return found.st_size


def _arrays(body: memoryview) -> dict[str, Array]:
    """The arrays in `body`, which is all but the checksum. Raises ValueError."""
    if bytes(body[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("it does not begin like a state")
    length = int.from_bytes(body[-_LENGTH:], "little")
    data, told = body[: -_LENGTH - length], body[-_LENGTH - length : -_LENGTH]
    if not 0 < length <= min(_MOST_INDEX, len(body) - _LENGTH):
        raise ValueError("its index has an impossible length")
    try:
        return {
            str(entry["name"]): _array(entry, data) for entry in parse_json(bytes(told))["arrays"]
        }
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"its index is not one of arrays ({error})") from error


def _array(entry: Mapping[str, Any], data: memoryview) -> Array:
    """The array of an entry of the index, a view of `data`; any error where it does not fit."""
    shape, dtype, offset = entry["shape"], _DTYPES[entry["dtype"]], entry["offset"]
    room = len(data) - math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or not 0 <= offset <= room:  # numpy checks neither
        raise ValueError(f"its index names {shape} at {offset:,} of {len(data):,} bytes")
    return np.ndarray(shape, dtype, data, offset)
