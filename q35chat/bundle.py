"""The exported model folder: its manifest, where its files are, and whether they are whole.

Must not know what is inside a graph or which runtime opens it; imports nothing heavy.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from q35chat.advice import DEFAULT_OUT, program
from q35chat.again import adding, repair
from q35chat.errors import BundleError
from q35chat.integrity import Damage, Depth, Tell, damages, unheard
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


def is_bundle(path: Path) -> bool:
    """Whether `path` is a folder with a manifest; says nothing about its health."""
    return (path / MANIFEST_NAME).is_file()


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
        bundle._check_graphs()
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
        return repair(self.manifest, self.path)

    def adding(self, component: str) -> str:
        """What to do to have a component that is not there."""
        return adding(self.manifest, component, self.path)

    def damages(
        self, depth: Depth, names: Iterable[str] | None = None, tell: Tell = unheard
    ) -> Iterator[Damage]:
        """The files that are not as listed, of all or of `names`; `tell` hears what was read."""
        files = self.manifest.files
        if names is not None:
            files = {name: files[name] for name in names}
        return damages(self.path, files, depth, tell)

    def check(self, depth: Depth) -> None:
        """Raise BundleError for the first file that is not as listed."""
        for damage in self.damages(depth):
            raise BundleError(f"{self.path / damage.name} {damage.what}; {self.repair}")

    def _check_graphs(self) -> None:
        for graph, name in self.manifest.graphs.items():
            if name not in self.manifest.files:
                raise BundleError(
                    f"{self.path / MANIFEST_NAME}: the {graph} graph {name!r} is not among the "
                    f"listed files; {self.repair}"
                )


def _read_manifest(path: Path) -> Manifest:
    where = path / MANIFEST_NAME
    if not where.is_file():
        raise BundleError(_no_bundle(path))
    try:
        text = where.read_bytes()
    except OSError as error:
        raise BundleError(f"{where} cannot be read: {error.strerror}") from error
    return Manifest.from_json(text, str(where))


def _no_bundle(path: Path) -> str:
    """Why `path` is none, and what to do."""
    place = shlex.quote(str(path))
    if not path.is_dir():
        found = "is not a folder" if path.exists() else "does not exist"
        return f"{path} {found}; name the folder of an exported bundle"
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        return (
            f"{path} is a checkpoint, not a bundle: it has no {MANIFEST_NAME}; export it: "
            f"`{program()} export {place} --out {DEFAULT_OUT}`"
        )
    return (
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
    real = (root / name).resolve()
    if not real.is_relative_to(root.resolve()):
        raise BundleError(
            f"{root / name} is a link that leaves the bundle (to {real}); do not use this bundle"
        )
