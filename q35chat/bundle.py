"""The exported model folder: its manifest, where its files are, and whether they are whole.

Must not know what is inside a graph or which runtime opens it; imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from q35chat.errors import BundleError
from q35chat.manifest import SCHEMA, FileEntry, Manifest, ModelFacts, Source

__all__ = [
    "MANIFEST_NAME",
    "PROCESSOR_FOLDER",
    "SCHEMA",
    "Bundle",
    "FileEntry",
    "Manifest",
    "ModelFacts",
    "Source",
    "is_bundle",
]

MANIFEST_NAME = "q35chat.json"
PROCESSOR_FOLDER = "processor"

_REPAIR = "run `q35chat export --force` again"
_MIB = 1 << 20


def is_bundle(path: Path) -> bool:
    """Whether `path` is a folder with a manifest; says nothing about its health."""
    return (path / MANIFEST_NAME).is_file()


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle: every listed file was there, with its size, when it was opened."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path, *, check: Literal["sizes", "full"] = "sizes") -> Bundle:
        """Read the manifest of the folder `path` and check the files it lists.

        "sizes" looks at each file's length only; "full" also reads every byte for its SHA-256.
        Raises BundleError for a folder that is not a bundle, a bad manifest, or a missing,
        truncated, altered or escaping file.
        """
        manifest = _read_manifest(path)
        for name in (*manifest.files, *manifest.graphs.values()):
            _check_name(path, name)
        for name, entry in manifest.files.items():
            _check_file(path / name, name, entry)
        bundle = cls(path, manifest)
        bundle._check_graphs()
        if check == "full":
            bundle.verify()
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
                f"{self.path} has no {name} graph (it has: {present}); "
                f"run `q35chat export --component {name} --out {shlex.quote(str(self.path))}`"
            )
        return self.path / self.manifest.graphs[name]

    def verify(self) -> None:
        """Read every file and compare its SHA-256 with the manifest; BundleError for the first
        that differs."""
        for name, entry in self.manifest.files.items():
            digest = _sha256(self.path / name)
            if digest != entry.sha256:
                raise BundleError(
                    f"{self.path / name} was altered: its {entry.size:,} bytes have SHA-256 "
                    f"{digest[:12]}…, the manifest says {entry.sha256[:12]}…; {_REPAIR}"
                )

    def _check_graphs(self) -> None:
        for graph, name in self.manifest.graphs.items():
            if name not in self.manifest.files:
                raise BundleError(
                    f"{self.path / MANIFEST_NAME}: the {graph} graph {name!r} is not among the "
                    f"listed files; {_REPAIR}"
                )


def _read_manifest(path: Path) -> Manifest:
    where = path / MANIFEST_NAME
    if not path.is_dir():
        found = "is not a folder" if path.exists() else "does not exist"
        place = shlex.quote(str(path))
        raise BundleError(f"{path} {found}; run `q35chat export --out {place}` to make a bundle")
    if not where.is_file():
        raise BundleError(
            f"{path} is not a bundle: it has no {MANIFEST_NAME}; run `q35chat export` to make one"
        )
    try:
        text = where.read_bytes()
    except OSError as error:
        raise BundleError(f"{where} cannot be read: {error.strerror}") from error
    return Manifest.from_json(text, str(where))


def _check_name(root: Path, name: str) -> None:
    """Refuse names that leave the folder, in the manifest or through a symbolic link."""
    relative = PurePosixPath(name)
    plain = name and "\\" not in name and "\0" not in name and str(relative) == name
    if not plain or relative.is_absolute() or ".." in relative.parts or name == ".":
        raise BundleError(
            f"{root / MANIFEST_NAME} lists {name!r}, which is not a plain path inside the bundle; "
            f"do not use this bundle, {_REPAIR}"
        )
    real = (root / name).resolve()
    if not real.is_relative_to(root.resolve()):
        raise BundleError(
            f"{root / name} is a link that leaves the bundle (to {real}); "
            f"do not use this bundle, {_REPAIR}"
        )


def _check_file(path: Path, name: str, entry: FileEntry) -> None:
    if not path.is_file():
        raise BundleError(
            f"{path} is missing: the manifest lists {name} with {entry.size:,} bytes, "
            f"0 are there; {_REPAIR}"
        )
    size = path.stat().st_size
    if size != entry.size:
        state = "truncated" if size < entry.size else "altered"
        raise BundleError(
            f"{path} is {state}: it has {size:,} bytes, the manifest says {entry.size:,}; {_REPAIR}"
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_MIB):
                digest.update(block)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}; {_REPAIR}") from error
    return digest.hexdigest()
