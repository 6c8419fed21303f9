"""A checkpoint folder whose weight files are deleted as an export goes past their layers.

What a finished layer still has to give, its small tensors, lies in the export's work folder; a list
in the checkpoint's folder says what was deleted and by which export it can be finished. Must not
know how a layer is rounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from q35export.checkpoint import Checkpoint
from q35export.matrix import TEXT, Float32, Shape
from q35export.safetensors_files import GONE, TensorEntry

_LAYER = re.compile(re.escape(f"{TEXT}layers.") + r"(\d+)\.")
_KEPT = "kept {}.npz"


class ConsumedCheckpoint:
    """The tensors of `checkpoint`, whose files go once `needed` has no tensor of them any more.

    A `TensorSource`. `work` keeps what a layer is read for once it is finished; `fingerprint` is
    that of the folder when it was whole.
    """

    def __init__(
        self, checkpoint: Checkpoint, needed: Collection[str], work: Path, fingerprint: str
    ) -> None:
        self._checkpoint = checkpoint
        self._needed = frozenset(needed)
        self._work = work
        self._fingerprint = fingerprint
        self._kept: dict[str, Float32] = {}
        self._noted: dict[str, Float32] | None = None
        for path in sorted(work.glob(_KEPT.format("*"))):
            with np.load(path) as found:
                self._kept |= {name: found[name] for name in found.files}

    @staticmethod
    def to_be_freed(checkpoint: Checkpoint, needed: Collection[str]) -> int:
        """Bytes of the files that go before the last layer is done."""
        kept = {
            entry.path
            for name, entry in checkpoint.pieces().items()
            if name in needed and not _LAYER.match(name)
        }
        files = {entry.path for entry in checkpoint.pieces().values()} - kept
        return sum(path.stat().st_size for path in files if path.is_file())

    def expect(self, name: str, shape: Shape) -> None:
        """As the checkpoint."""
        self._checkpoint.expect(name, shape)

    def read(self, name: str) -> Float32:
        """The whole tensor. Raises CheckpointError as the checkpoint, and for one of a layer that
        is finished and was not kept."""
        return self._kept[name] if name in self._kept else self._note(name)

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """`tensor[start:stop]` along the first axis."""
        if name in self._kept or self._noted is not None:
            return self.read(name)[start:stop]
        return self._checkpoint.rows(name, start, stop)

    @contextmanager
    def keeping(self, index: int) -> Iterator[None]:
        """Keep what is read inside the block: all that layer `index` is needed for later."""
        self._noted = {}
        try:
            yield
            made = self._work / f"{_KEPT.format(index)}.new"
            with made.open("wb") as file:
                np.savez(file, **self._noted)  # type: ignore[arg-type]
            made.replace(self._work / _KEPT.format(index))
            self._kept |= self._noted
        finally:
            self._noted = None

    def finish(self, index: int) -> list[Path]:
        """Delete the files that layers after `index` and all else do not need; their paths."""
        files: dict[Path, dict[str, TensorEntry]] = {}
        for name, entry in self._checkpoint.pieces().items():
            files.setdefault(entry.path, {})[name] = entry
        over = [
            path
            for path, entries in files.items()
            if path.is_file() and not any(self._is_needed(name, index) for name in entries)
        ]
        if over:
            os.sync()  # the codes are on the disk before the weights are not
            self._list({path.name: files[path] for path in files if path in over or _gone(path)})
            for path in over:
                path.unlink()
        return over

    def _is_needed(self, name: str, index: int) -> bool:
        layer = _LAYER.match(name)
        return int(layer[1]) > index if layer else name in self._needed

    def _note(self, name: str) -> Float32:
        found = self._checkpoint.read(name)
        if self._noted is not None:
            self._noted[name] = found
        return found

    def _list(self, files: dict[str, dict[str, TensorEntry]]) -> None:
        listed = {
            "fingerprint": self._fingerprint,
            "files": {
                file: {name: [entry.dtype, list(entry.shape)] for name, entry in entries.items()}
                for file, entries in files.items()
            },
        }
        place = self._checkpoint.folder / GONE
        made = place.with_name(f"{GONE}.new")
        made.write_text(json.dumps(listed), encoding="utf-8")
        made.replace(place)


def _gone(path: Path) -> bool:
    return not path.exists()
