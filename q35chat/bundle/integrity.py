"""Whether the files of a bundle are those that its manifest lists.

Compares sizes and SHA-256. Must not know what the files are, nor what to do about damage.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from q35chat.bundle.manifest import FileEntry
from q35chat.quoting import quoted

Depth = Literal["names", "sizes", "small", "full"]
"""How closely a bundle is looked at: not at all, at sizes, also at every byte of small files, or
at every byte."""
Tell = Callable[[str, int], None]
"""Gets a file's path in the bundle and how many more bytes of it were read."""

SMALL_BYTES: Final = 32 << 20
_READ: Final = {".json", ".jinja", ".txt", ".model"}
"""Endings of the files that readers of a tokenizer look for by themselves."""
_BLOCK: Final = 1 << 20


def unheard(_name: str, _count: int) -> None:
    """Nobody follows the check."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One file, its path in the bundle with `/`, what is wrong, to be said after its name, and what
    to do about it where the bundle need not be made again."""

    name: str
    what: str
    remedy: str = ""


def damages(
    root: Path,
    files: Mapping[str, FileEntry],
    depth: Depth,
    tell: Tell = unheard,
) -> Iterator[Damage]:
    """Every file that is not as listed. Names are trusted: they must not leave `root`."""
    for name, entry in files.items() if depth != "names" else ():
        what = _wrong_size(root / name, entry)
        if not what and (depth == "full" or (depth == "small" and entry.size <= SMALL_BYTES)):
            what = _wrong_content(root / name, name, entry, tell)
        if what:
            yield Damage(name, what)


def unlisted(root: Path, folder: str, files: Mapping[str, FileEntry]) -> Iterator[Damage]:
    """The files below `folder` that a reader of the folder would take up although nobody listed
    them. What no reader looks at, as notes and hidden files, may lie there."""
    for parent, folders, names in os.walk(root / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        seen = (name for name in (*names, *links) if not name.startswith("."))
        for path in sorted(Path(parent, name) for name in seen):
            name = path.relative_to(root).as_posix()
            if name not in files and (path.is_dir() or path.suffix in _READ):
                what = "is not in the manifest, and would be read all the same"
                yield Damage(name, what, f"delete it: rm {quoted(str(path))}")


def _wrong_size(path: Path, entry: FileEntry) -> str:
    if not path.is_file():
        return f"is missing: the manifest lists {entry.size:,} bytes, 0 are there"
    size = path.stat().st_size
    if size == entry.size:
        return ""
    state = "truncated" if size < entry.size else "altered"
    return f"is {state}: it has {size:,} bytes, the manifest says {entry.size:,}"


def _wrong_content(path: Path, name: str, entry: FileEntry, tell: Tell) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                tell(name, len(block))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    found = digest.hexdigest()
    if found == entry.sha256:
        return ""
    return (
        f"was altered: its {entry.size:,} bytes have SHA-256 {found[:12]}…, the manifest says "
        f"{entry.sha256[:12]}…"
    )
