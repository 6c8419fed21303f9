"""The user's data folder, for nobody else's eyes: the pictures in it, and its lock files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import platformdirs

from q35chat.chat.history.records import StoreWriteError
from q35chat.errors import StoreError
from q35chat.files import locked

OWNER_ONLY = 0o700
_HASH: Final = re.compile("[0-9a-f]{64}")


def data_folder() -> Path:
    """The user's data folder for q35chat (`$XDG_DATA_HOME/q35chat` on Linux); not created here."""
    return platformdirs.user_data_path("q35chat", appauthor=False)


def states_folder(folder: Path | None = None) -> Path:
    """Where the states of the conversations in a data folder are kept; not created here."""
    return (folder or data_folder()) / "states"


def private_folder(path: Path) -> Path:
    """Make `path` a folder that only its owner can enter, and return it. Raises StoreWriteError."""
    try:
        path.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o777 != OWNER_ONLY:
            path.chmod(OWNER_ONLY)
    except OSError as error:
        raise StoreWriteError(
            f"The data folder {path} cannot be used: {error.strerror}. "
            "Check its owner and free space, or set XDG_DATA_HOME to another place."
        ) from error
    return path


@contextlib.contextmanager
def exclusive(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`. Waits for another holder, or raises StoreError(`busy`)."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=busy is None))
        except BlockingIOError as error:
            raise StoreError(busy or "") from error
        except OSError as error:
            raise StoreWriteError(
                f"The lock file {path} cannot be opened: {error.strerror}. "
                "Check its permissions and free space."
            ) from error
        yield


class PictureFiles:
    """Attached pictures as files named by their SHA-256, each kept once, so that a moved original
    does not matter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        """Where the picture with this hash is kept."""
        return self._folder / sha256[:2] / sha256

    def keep(self, sha256: str, data: bytes) -> None:
        """Write the picture unless an intact copy is there. Raises StoreWriteError."""
        path = self.path(sha256)
        if not data or self.read(sha256) is not None:
            return
        private_folder(path.parent)
        part = path.with_name(f"{sha256}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise StoreWriteError(
                f"The picture cannot be copied to {path}: {error.strerror}. Check free space."
            ) from error

    def read(self, sha256: str) -> bytes | None:
        """The original bytes, or None when the file is gone or no longer what its hash says."""
        try:
            data = self.path(sha256).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def hashes(self) -> Iterator[str]:
        """The hashes of all pictures that are kept."""
        return (path.name for path in self._folder.glob("??/*") if _HASH.fullmatch(path.name))

    def unfinished(self) -> Iterator[Path]:
        """What was being written when its process was killed, unless one is writing now."""
        return self._folder.glob("??/*.part")

    def remove(self, sha256: str) -> None:
        """Delete the picture if it is there. Raises StoreError."""
        path = self.path(sha256)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"The picture {path} cannot be deleted: {error.strerror}. Delete it there."
            ) from error
