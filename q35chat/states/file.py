"""One state as a file: arrays one after another, then where each of them lies, then a checksum.

Written beside its place and renamed, private, and mapped when it is read. What stands in a file are
numbers and their places; whatever is wrong with it, it is refused with a ValueError.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
_NUMBER: Final = 8
"""Bytes of the index's length, and of the checksum behind it."""
_AT_ONCE: Final = getattr(mmap, "MAP_POPULATE", 0)
"""Maps all pages in one go, where the system can."""
_MOST_INDEX: Final = 1 << 20
_KINDS: Final = ("f2", "f4", "f8", "b1", "i1", "u1", "i4", "i8")
_DTYPES: Final = {np.dtype(kind).str: np.dtype(kind) for kind in _KINDS}


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
        with os.fdopen(descriptor, "wb", buffering=0) as file, ThreadPoolExecutor(1) as other:
            files.lock(descriptor)  # as long as it is held, this is not what a dead process left
            whole = _write(_Checked(file.write, other), arrays, may_go_on)
            if whole:
                part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return whole


def read_state(path: Path, *, checked: bool = True) -> Mapping[str, Array]:
    """The arrays of the file `path` by name, mapped: views that cannot be written.

    Raises OSError, and ValueError for a file that is no state or, where that is `checked`, damaged.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb"):
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size < len(_MAGIC) + 2 * _NUMBER:
            raise ValueError("it is no file, or too short")
        flags = mmap.MAP_SHARED | (_AT_ONCE if checked else 0)
        mapped = memoryview(mmap.mmap(descriptor, 0, flags=flags, prot=mmap.PROT_READ))
    body, checksum = mapped[:-_NUMBER], int.from_bytes(mapped[-_NUMBER:], "little")
    if checked and zlib.crc32(body) != checksum:
        raise ValueError("its checksum is not that of its content")
    return _arrays(body)


class _Checked:
    """Writes, and counts the bytes; the checksum is computed in another thread meanwhile."""

    def __init__(self, write: Callable[[memoryview], int], other: ThreadPoolExecutor) -> None:
        self._write = write
        self._other = other
        self.count = self.checksum = 0

    def write(self, data: memoryview | bytes) -> None:
        checksum = self._other.submit(zlib.crc32, data, self.checksum)
        self.count += len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[self._write(rest) :]
        self.checksum = checksum.result()


def _write(
    out: _Checked, arrays: Iterable[tuple[str, Array]], may_go_on: Callable[[int], bool]
) -> bool:
    index: list[dict[str, object]] = []
    out.write(_MAGIC)
    for name, array in arrays:
        out.write(bytes(-out.count % _ALIGNMENT))
        if not may_go_on(out.count):
            return False
        spec = {"name": name, "dtype": array.dtype.str, "shape": array.shape}
        index.append(spec | {"offset": out.count})
        out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    told = json.dumps({"arrays": index}).encode()
    out.write(told + len(told).to_bytes(_NUMBER, "little"))
    out.write(out.checksum.to_bytes(_NUMBER, "little"))
    return may_go_on(out.count)


def _arrays(body: memoryview) -> dict[str, Array]:
    """The arrays in `body`, which is all but the checksum. Raises ValueError."""
    if bytes(body[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("it does not begin like a state")
    length = int.from_bytes(body[-_NUMBER:], "little")
    if not 0 < length <= min(_MOST_INDEX, len(body) - _NUMBER):
        raise ValueError("its index has an impossible length")
    data, told = body[: -_NUMBER - length], body[-_NUMBER - length : -_NUMBER]
    try:
        index = parse_json(bytes(told))["arrays"]
        return {str(entry["name"]): _array(entry, data) for entry in index}
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"its index is not one of arrays ({error})") from error


def _array(entry: Mapping[str, Any], data: memoryview) -> Array:
    """The array of an entry of the index, a view of `data`; any error where it does not fit."""
    shape, dtype, offset = entry["shape"], _DTYPES[entry["dtype"]], entry["offset"]
    room = len(data) - math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or not 0 <= offset <= room:  # numpy checks neither
        raise ValueError(f"its index names {shape} at {offset:,} of {len(data):,} bytes")
    return np.ndarray(shape, dtype, data, offset)
