"""Whether the files of a bundle are those that its manifest lists.

Compares sizes and SHA-256. Must not know what the files are, nor what to do about damage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from q35chat.manifest import FileEntry

Depth = Literal["names", "sizes", "small", "full"]
"""How closely a bundle is looked at: not at all, at sizes, also at every byte of small files, or
at every byte."""
Tell = Callable[[str, int], None]
"""Gets a file's path in the bundle and how many more bytes of it were read."""

SMALL_BYTES: Final = 32 << 20
_BLOCK: Final = 1 << 20


def unheard(_name: str, _count: int) -> None:
    """Nobody follows the check."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One file, its path in the bundle with `/`, and what is wrong, to be said after its name."""

    name: str
    what: str


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
