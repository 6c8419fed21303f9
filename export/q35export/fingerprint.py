"""Whether a checkpoint folder is the one a bundle was made from, without reading its weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

_SUFFIXES = (".safetensors", ".json", ".jinja", ".txt")
_HEADER_LIMIT = 1 << 24


def folder_fingerprint(folder: Path) -> str:
    """Hexadecimal digest over the checkpoint files at the top of `folder`.

    Small files count by content; weight files by name, size, time of change and header, so that
    weights rewritten in place are seen. The folder's own name and place do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES and path.is_file():
            facts: list[object] = [path.name, path.stat().st_size]
            if path.suffix == ".safetensors":
                facts += [path.stat().st_mtime_ns, _digest_of_header(path)]
            else:
                facts.append(hashlib.sha256(path.read_bytes()).hexdigest())
            digest.update(json.dumps(facts).encode())
    return digest.hexdigest()


def _digest_of_header(path: Path) -> str:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return hashlib.sha256(file.read(min(length, _HEADER_LIMIT))).hexdigest()
