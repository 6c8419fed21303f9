"""Files that several processes share: written as a whole, and held by one at a time.

A leaf. Knows nothing of what stands in them.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_EVERYBODY: Final = 0o666
_NAME: Final = 40
_EXCHANGE: Final = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_HERE: Final = -100  # AT_FDCWD of Linux


def replace_file(path: Path, content: str | bytes, *, mode: int = _EVERYBODY) -> None:
    """Put `content`, a text as UTF-8, into `path`, or leave what stands there as it is.

    A new file gets `mode` as far as the user's mask allows it, an old one keeps its own. A link
    stays one, and what is no file but a pipe or a device is written to. Raises OSError, also for a
    folder that is not there.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    target = Path(os.path.realpath(path))
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        found = None
    if found is not None and not stat.S_ISREG(found):
        target.write_bytes(data)
        return
    name = f".{target.name[:_NAME]}."
    _sweep(target.parent, name)
    part = target.with_name(f"{name}{os.urandom(4).hex()}.new")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, mode), "wb") as file:
            with suppress(OSError):  # a file system without locks
                lock(file.fileno())
            if found is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(found))
            file.write(data)
        part.replace(target)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def exchange(first: Path, second: Path) -> bool:
    """Give each of two the name of the other in one step. False where the system cannot, and then
    nothing has changed."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    try:
        if sys.platform == "darwin":
            failed: int = library.renamex_np(*names, _EXCHANGE)
        else:
            failed = library.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE)
    except AttributeError:
        return False
    return not failed


def _sweep(folder: Path, name: str) -> None:
    """Remove what a killed process has left of a file: what is being written is locked."""
    for left in folder.glob(f"{glob.escape(name)}????????.new"):
        with suppress(OSError), locked(left, wait=False):
            left.unlink()


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock file `path`, which is made where it is missing and stays.

    Waits for another holder, or raises BlockingIOError. Raises OSError for a file that cannot be.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock(handle, wait=wait)
        yield
    finally:
        os.close(handle)


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Nobody else who asks for the same file goes on meanwhile, in no process and no thread: what
    is read here is what stands there until it is replaced. Its folder is made where it is missing.
    Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(path.with_name(f".{path.name}.lock")):
        yield


def lock(descriptor: int, *, wait: bool = True) -> None:
    """Hold an open file until it is closed. Waits for another holder, or raises BlockingIOError."""
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still is the one at `path`: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
