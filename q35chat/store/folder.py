"""Where conversations live: the user's data folder, for nobody else's eyes."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from q35chat.errors import StoreError

OWNER_ONLY = 0o700


def data_folder() -> Path:
    """The user's data folder for q35chat (`$XDG_DATA_HOME/q35chat` on Linux); not created here."""
    return platformdirs.user_data_path("q35chat", appauthor=False)


def private_folder(path: Path) -> Path:
    """Make `path` a folder that only its owner can enter, and return it. Raises StoreError."""
    try:
        path.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o777 != OWNER_ONLY:
            path.chmod(OWNER_ONLY)
    except OSError as error:
        raise StoreError(
            f"The data folder {path} cannot be used: {error.strerror}. "
            "Check its owner and free space, or set XDG_DATA_HOME to another place."
        ) from error
    return path
