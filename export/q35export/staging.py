"""Where a bundle grows before it takes its place, and how it does so at one stroke.

Beside `out` lies, while an export or a conversion runs, `.out.q35-lock` (held by the kernel for the
living process only); and beside it, for an export, `.out.q35-partial-PID` (the new bundle),
`.out.q35-rounded-PID` (its matrices) and, where two names cannot be exchanged in one step,
`.out.q35-old-PID` (the one it replaces). Whoever holds the lock may clean up what a killed export
left; matrices that a calibration rounded already, `.out.q35-calibration`, stay
for the next one. SIGTERM and SIGHUP become exceptions, so that stopped work cleans up as
Ctrl+C does, and cleaning up is cut short by none of them. Must not know what a bundle holds beyond
its manifest.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from q35chat.bundle.bundle import MANIFEST_NAME, Manifest, beside, is_bundle
from q35chat.errors import ExportError
from q35chat.files import exchange, is_at, lock

_log = logging.getLogger(__name__)

LOCK_INSIDE = ".q35-lock"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_PREFIX = f".{MANIFEST_NAME}"
_LEFTOVER = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")


@contextlib.contextmanager
def exclusive(out: Path, work: str = "an export") -> Iterator[None]:
    """Be the only one who writes `out`, and repair what a killed export left beside it.

    `work` says to others what is done there. The parent folder is made if needed; where a bundle
    stands in a folder that cannot be written, as a mounted one, the lock lies in the bundle. Raises
    ExportError when somebody else is at work or the lock cannot be written.
    """
    stands_alone = out.is_dir() and not os.access(out.parent, os.W_OK)
    path = out / LOCK_INSIDE if stands_alone else beside(out, "lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        held = _acquire(path, out, work)
    except OSError as error:
        raise ExportError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        for leftover in () if stands_alone else _leftovers(out):
            _settle(leftover, out)
        yield
    finally:
        with undisturbed():
            path.unlink(missing_ok=True)
            held.close()


@contextlib.contextmanager
def staging_folder(out: Path, what: str = "partial") -> Iterator[Path]:
    """An empty folder beside `out`, removed at the end unless `publish` moved it away."""
    folder = _unused(out, what)
    folder.mkdir()
    try:
        yield folder
    finally:
        with undisturbed():
            _remove(folder)


@contextlib.contextmanager
def resumable_folder(out: Path, key: str) -> Iterator[Path]:
    """A folder beside `out` with what an earlier run of the same `key` left there when it was
    stopped; removed once the block ends well."""
    folder = beside(out, "calibration")
    if not is_resumable(out, key):
        _remove(folder)
        folder.mkdir()
        (folder / "key").write_text(key, encoding="utf-8")
    yield folder
    with undisturbed():
        shutil.rmtree(folder)


def is_resumable(out: Path, key: str) -> bool:
    """Whether an earlier run of `key` left something beside `out` to go on with."""
    mark = beside(out, "calibration") / "key"
    return mark.is_file() and mark.read_text(encoding="utf-8") == key


def publish(staged: Path, out: Path) -> None:
    """Put the complete bundle `staged` in the place of `out`, which is absent, empty or a bundle.

    Everything is on the disk before. A bundle that stands there and the new one exchange their
    names in one step; where the system cannot do that, `out` is missing between two renames, and
    `former` finds the old bundle until the next export puts it back.
    """
    for parent, _, names in os.walk(staged):
        for name in names:
            _sync(Path(parent, name))
        _sync(Path(parent))
    old = _unused(out, "old")
    with undisturbed():
        if is_bundle(out) and exchange(staged, out):  # what is staged now goes with its folder
            _sync(out.parent)
            return
        try:
            if is_bundle(out):
                out.rename(old)
            staged.rename(out)
            _sync(out.parent)
        finally:
            _settle(old, out)


def _settle(leftover: Path, out: Path) -> None:
    """Put a replaced bundle back when nothing took its place; remove it otherwise."""
    was_replaced = leftover.name.startswith(beside(out, "old-").name)
    is_free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if was_replaced and is_bundle(leftover) and is_free:
        leftover.rename(out)
    else:
        _remove(leftover)


def _acquire(path: Path, out: Path, work: str) -> TextIO:
    while True:
        held = path.open("a+", encoding="ascii")
        try:
            lock(held.fileno(), wait=False)
        except BlockingIOError as error:
            held.seek(0)
            owner = held.read().strip() or "another process"
            held.close()
            raise ExportError(f"{owner} is writing {out}; wait for it or stop it") from error
        if is_at(held.fileno(), path):
            held.truncate(0)
            held.write(f"{work} (process {os.getpid()})\n")
            held.flush()
            return held
        held.close()


def _unused(out: Path, what: str) -> Path:
    """A name beside `out` that tells which process it is of, unless that is taken."""
    number = os.getpid()
    while (folder := beside(out, f"{what}-{number}")).exists():
        number += 1
    return folder


def _leftovers(out: Path) -> list[Path]:
    """Replaced bundles first: they go back before anything else could take their place."""
    pattern = re.compile(re.escape(beside(out, "").name) + r"(old|partial|rounded)-\d+")
    found = [path for path in out.parent.iterdir() if pattern.fullmatch(path.name)]
    return sorted(found, key=lambda path: path.name)


def _remove(folder: Path) -> None:
    """Delete a folder of ours, the manifest first: half of a bundle must not look like one. What
    cannot be deleted stays, and a warning says so."""
    if not folder.is_dir() or folder.is_symlink():
        return
    try:
        for parent, _, _ in os.walk(folder):  # of a bundle that is kept from being written
            Path(parent).chmod(stat.S_IRWXU)
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        shutil.rmtree(folder)
    except OSError as error:
        _log.warning("%s cannot be removed (%s) and is not needed: remove it", folder, error)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise SystemExit (143 on SIGTERM, 129 on SIGHUP unless it is ignored, as under nohup) inside
    the block; in a side thread do nothing."""

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled([n for n in _ENDING if signal.getsignal(n) not in {None, signal.SIG_IGN}], stop):
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl+C, SIGTERM and SIGHUP wait until the block's end; in a side thread do nothing."""
    came: list[int] = []
    numbers = [n for n in (signal.SIGINT, *_ENDING) if signal.getsignal(n) is not None]
    try:
        with _handled(numbers, lambda number, _: came.append(number)):
            yield
    finally:
        for last in came[-1:]:
            signal.raise_signal(last)


@contextlib.contextmanager
def _handled(
    numbers: list[signal.Signals], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    """Signals go to `handler` inside the block; in a side thread they are left as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, before in previous:
            signal.signal(number, before)


def replace_manifest(bundle: Path, manifest: Manifest) -> None:
    """Put `manifest` into the folder `bundle`, in one step. Raises OSError; the old one then stays,
    alone."""
    descriptor, name = tempfile.mkstemp(dir=bundle, prefix=_PREFIX)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(manifest.to_json())
            file.flush()
            os.fsync(file.fileno())
        written.chmod(0o644)
        written.replace(bundle / MANIFEST_NAME)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def is_leftover(name: str) -> bool:
    """Whether a file of this name in a bundle is a manifest that never took its place."""
    return _LEFTOVER.fullmatch(name) is not None


def clear_leftovers(bundle: Path) -> None:
    """Delete manifests that never took their place; nobody may be writing one."""
    for path in bundle.iterdir():
        if is_leftover(path.name):
            path.unlink()
