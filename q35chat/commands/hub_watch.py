"""How far a download from Hugging Face is, read off its cache while the library fills it.

Only weights count. Knows the cache's layout, and nothing of who downloads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

_EVERY_S: Final = 0.25
_UNFINISHED: Final = ".incomplete"

Tell = Callable[[int, int], None]


class HubWatch:
    """Calls `tell` with (fetched, total) bytes, total 0 where unknown, until it is left.

    `tell` is called in a thread of its own; not at all where everything is in the cache.
    """

    def __init__(self, model: str, revision: str | None, tell: Tell) -> None:
        self._model, self._revision, self._tell = model, revision, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Tell nothing any more."""
        self._over.set()

    def join(self) -> None:
        """Wait until there is nothing more to tell."""
        self._thread.join()

    def _watch(self) -> None:
        blobs = _blobs(self._model)
        before = _stored(blobs, unfinished=False)
        total = _to_fetch(self._model, self._revision)
        while total != 0 and not self._over.is_set():
            done = _stored(blobs, unfinished=True) - before
            self._tell(min(done, total) if total else done, total or 0)
            self._over.wait(_EVERY_S)


def _to_fetch(model: str, revision: str | None) -> int | None:
    """Bytes of weights that are not in the cache; None where the hub does not say."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    try:
        files = snapshot_download(
            model,
            revision=revision,
            allow_patterns=["*.safetensors"],
            ignore_patterns=["*/*"],
            dry_run=True,
        )
        return sum(file.file_size or 0 for file in files if file.will_download)
    except Exception:  # noqa: BLE001 - the download itself says what is wrong
        return None


def _blobs(model: str) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415

    return Path(HF_HUB_CACHE, f"models--{model.replace('/', '--')}", "blobs")


def _stored(folder: Path, *, unfinished: bool) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(
                entry.stat().st_size
                for entry in entries
                if unfinished or not entry.name.endswith(_UNFINISHED)
            )
    except OSError:
        return 0
