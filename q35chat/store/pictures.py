"""Attached pictures as files named by their SHA-256, so that a moved original does not matter."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from q35chat.errors import StoreError
from q35chat.store.folder import private_folder


class PictureFiles:
    """A folder of original picture bytes, each kept once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        """Where the picture with this hash is kept."""
        return self._folder / sha256[:2] / sha256

    def keep(self, sha256: str, data: bytes) -> None:
        """Write the picture unless an intact copy is there. Raises StoreError."""
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
            raise StoreError(
                f"The picture cannot be copied to {path}: {error.strerror}. Check free space."
            ) from error

    def read(self, sha256: str) -> bytes | None:
        """The original bytes, or None when the file is gone or no longer what its hash says."""
        try:
            data = self.path(sha256).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def remove(self, sha256: str) -> None:
        """Delete the picture if it is there. Raises StoreError."""
        path = self.path(sha256)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"The picture {path} cannot be deleted: {error.strerror}. Delete it there."
            ) from error
