"""The exported model folder: its manifest, where its files are, and whether they are whole.

Must not know what is inside a graph or which runtime opens it; imports nothing heavy.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from q35chat.bundle.manifest import SCHEMA, FileEntry, Manifest, ModelFacts, Source
from q35chat.errors import BundleError, Remedy
from q35chat.json_reader import read_bytes
from q35chat.text import quoted

__all__ = [
    "MANIFEST_NAME",
    "PROCESSOR_FOLDER",
    "SCHEMA",
    "Bundle",
    "FileEntry",
    "Manifest",
    "ModelFacts",
    "Source",
    "beside",
    "former",
    "is_bundle",
]

MANIFEST_NAME = "q35chat.json"
PROCESSOR_FOLDER = "processor"

Depth = Literal["names", "sizes", "small", "full"]
"""How closely a bundle is looked at: not at all, at sizes, also at every byte of small files, or
at every byte."""
Tell = Callable[[str, int], None]
"""Gets a file's path in the bundle and how many more bytes of it were read."""

SMALL_BYTES: Final = 32 << 20
_READ: Final = {".json", ".jinja", ".txt", ".model"}
"""Endings of the files that readers of a tokenizer look for by themselves."""
_BLOCK: Final = 1 << 20


def is_bundle(path: Path) -> bool:
    """Whether `path` is a folder with a manifest; says nothing about its health."""
    return os.path.isfile(path / MANIFEST_NAME)  # noqa: PTH113  (False for any name that is none)


def beside(out: Path, what: str) -> Path:
    """A name beside the bundle `out` for something of its export."""
    return out.parent / f".{out.name}.q35-{what}"


def former(out: Path) -> Path | None:
    """The bundle that an export was to replace at `out`, where it was killed at that: then there is
    none at `out`."""
    pattern = f"{glob.escape(beside(out, 'old-').name)}*"
    found = () if os.path.exists(out) else out.parent.glob(pattern)  # noqa: PTH110  (never raises)
    return next((path for path in sorted(found) if is_bundle(path)), None)


def unheard(_name: str, _count: int) -> None:
    """Nobody follows the check."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """One file, its path in the bundle with `/`, what is wrong, to be said after its name, and what
    to do about it where the bundle need not be made again."""

    name: str
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle: its files were as listed when it was opened, as far as was looked."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path, *, check: Depth = "sizes") -> Bundle:
        """Read the manifest of the folder `path` and check the files it lists.

        Raises BundleError for a folder that is not a bundle, a bad manifest, or a missing,
        truncated, altered or escaping file.
        """
        manifest = _read_manifest(path)
        for name in (*manifest.files, *manifest.graphs.values()):
            _check_name(path, name)
        bundle = cls(path, manifest)
        for graph, name in manifest.graphs.items():
            if name not in manifest.files:
                raise BundleError(
                    f"{path / MANIFEST_NAME}: the {graph} graph {name!r} is not among the "
                    f"listed files; {bundle.repair}"
                )
        bundle.check(check)
        return bundle

    @property
    def processor_dir(self) -> Path:
        """The folder of the tokenizer, chat template and picture processor files."""
        return self.path / PROCESSOR_FOLDER

    def graph_path(self, name: str) -> Path:
        """The ONNX file of the graph `name` ("text", "vision"); BundleError if there is none."""
        if name not in self.manifest.graphs:
            present = ", ".join(sorted(self.manifest.graphs)) or "none"
            raise BundleError(
                f"{self.path} has no {name} graph (it has: {present}); {self.adding(name)}"
            )
        return self.path / self.manifest.graphs[name]

    @property
    def repair(self) -> str:
        """What to do about damage."""
        return Remedy.MAKE_AGAIN.words(manifest=self.manifest, folder=self.path)

    def adding(self, component: str) -> str:
        """What to do to have a component that is not there."""
        facts = {"manifest": self.manifest, "folder": self.path}
        return Remedy.ADD_COMPONENT.words(component=component, **facts)

    def damages(
        self, depth: Depth, names: Iterable[str] | None = None, tell: Tell = unheard
    ) -> Iterator[DamagedFile]:
        """The files that are not as listed, of all or of `names`; `tell` hears what was read.

        Where all are looked at, also those that are not listed and would be read.
        """
        files = self.manifest.files
        if names is not None:
            files = {name: files[name] for name in names}
        for name, entry in files.items() if depth != "names" else ():
            what = _wrong_size(self.path / name, entry)
            if not what and (depth == "full" or (depth == "small" and entry.size <= SMALL_BYTES)):
                what = _wrong_content(self.path / name, name, entry, tell)
            if what:
                yield DamagedFile(name, what)
        if names is None and depth != "names":
            yield from _unlisted(self.path, PROCESSOR_FOLDER, files)

    def check(self, depth: Depth) -> None:
        """Raise BundleError for the first file that is not as listed."""
        for damage in self.damages(depth):
            advice = damage.remedy or self.repair
            raise BundleError(f"{self.path / damage.name} {damage.what}; {advice}")


def _read_manifest(path: Path) -> Manifest:
    where = path / MANIFEST_NAME
    if not is_bundle(path):
        raise _no_bundle(path)
    if not _is_text(str(path.absolute())):
        raise BundleError(f"the folder name {str(path)!a} is not UTF-8; rename it")
    try:
        text = read_bytes(where)
    except ValueError as error:
        raise BundleError(f"{where} cannot be read: {error}") from error
    return Manifest.from_json(text, str(where))


def _is_text(name: str) -> bool:
    """Whether native libraries can be given this name."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _no_bundle(path: Path) -> BundleError:
    """Why `path` is none, and what to do."""
    if not os.path.isdir(path):  # noqa: PTH112
        found = "is not a folder" if os.path.exists(path) else "does not exist"  # noqa: PTH110
        return BundleError(f"{path} {found}; name the folder of an exported bundle")
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        what = f"{path} is a checkpoint, not a bundle: it has no {MANIFEST_NAME}"
        return BundleError(what, Remedy.EXPORT_CHECKPOINT, folder=path)
    return BundleError(
        f"{path} is not a bundle: it has no {MANIFEST_NAME}; name the folder of an exported bundle"
    )


def _check_name(root: Path, name: str) -> None:
    """Refuse names that leave the folder, in the manifest or through a symbolic link."""
    relative = PurePosixPath(name)
    plain = name and "\\" not in name and "\0" not in name and str(relative) == name
    if not plain or relative.is_absolute() or ".." in relative.parts or name == ".":
        raise BundleError(
            f"{root / MANIFEST_NAME} lists {name!r}, which is not a plain path inside the bundle; "
            "do not use this bundle"
        )
    real = Path(os.path.realpath(root / name))
    if not real.is_relative_to(os.path.realpath(root)):
        raise BundleError(
            f"{root / name} is a link that leaves the bundle (to {real}); do not use this bundle"
        )


def _unlisted(root: Path, folder: str, files: Mapping[str, FileEntry]) -> Iterator[DamagedFile]:
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
                yield DamagedFile(name, what, f"delete it: rm {quoted(str(path))}")


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
