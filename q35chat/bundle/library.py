"""The bundles that this user has: those in the models folder, by the names of their folders, and
`out/` of the current folder.

Knows manifests and folders; loads nothing and must not know which bundle is in use.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from q35chat.bundle.bundle import MANIFEST_NAME, is_bundle
from q35chat.bundle.manifest import Manifest
from q35chat.errors import BundleError, OutputError, UsageError
from q35chat.json_reader import read_bytes
from q35chat.processes import DEFAULT_OUT
from q35chat.text import safe_line


@dataclass(frozen=True, slots=True)
class Installed:
    """A bundle: the name that a user types, its folder, and what its manifest says; `size` in bytes
    of all its files."""

    name: str
    path: Path
    model: str
    target: str
    precision: str
    capacity: int
    size: int


def models_folder() -> Path:
    """Where this user's bundles are."""
    return platformdirs.user_data_path("q35chat") / "models"


def installed() -> list[Installed]:
    """All of them, by name, `out` first; a folder whose manifest cannot be read is left out."""
    found: list[Installed] = []
    for name, path in _places():
        with suppress(BundleError, ValueError):
            manifest = Manifest.from_json(read_bytes(path / MANIFEST_NAME), str(path))
            size = sum(entry.size for entry in manifest.files.values())
            found.append(
                Installed(
                    name,
                    path,
                    manifest.source.name,
                    manifest.target,
                    manifest.precision,
                    manifest.capacity,
                    size,
                )
            )
    return found


def by_name(name: str) -> Path | None:
    """The folder of the bundle with this name; None where there is none."""
    return next((path for known, path in _places() if known == name), None)


def own_name(folder: Path) -> str | None:
    """The name that a user gave the bundle in `folder`; None for one outside the models folder."""
    inside = folder.parent.resolve() == models_folder().resolve() and folder.name[:1] != "."
    return folder.name if inside else None


def folder_of(path: Path) -> Path:
    """The folder that a user meant: a plain word that no folder here has is a model's name."""
    if path.name != str(path) or path.exists():
        return path
    return by_name(path.name) or path


def place_of(name: str) -> Path:
    """The folder of the models folder for a bundle of this name, whether or not it is there. Raises
    UsageError for a name that is none."""
    if not name or name != Path(name).name or name.startswith(".") or name == DEFAULT_OUT:
        raise UsageError(
            f"{safe_line(name) or 'nothing'} is no name for a model; give a plain word"
        )
    return models_folder() / name


def add(folder: Path, name: str) -> Path:
    """Move a bundle into the models folder under a name; its new folder.

    Raises UsageError for a name that is none or is taken, BundleError for a folder that holds no
    bundle, OutputError where it cannot be moved.
    """
    if not is_bundle(folder):
        raise BundleError(f"{safe_line(str(folder))} is no bundle; give the folder of an export")
    place = place_of(name)
    if place.exists():
        raise UsageError(f"there is a model {safe_line(name)} already; give another name")
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(folder, place)
    except OSError as error:
        raise OutputError(f"cannot move {safe_line(str(folder))}: {error}") from error
    return place


def remove(name: str) -> None:
    """Delete a bundle of the models folder. Raises UsageError for any other, OutputError where it
    cannot be deleted."""
    path = by_name(name)
    if path is None or path.parent != models_folder():
        raise UsageError(
            f"there is no model {safe_line(name)} in {safe_line(str(models_folder()))}"
        )
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise OutputError(f"cannot delete {safe_line(str(path))}: {error}") from error


def _places() -> Iterator[tuple[str, Path]]:
    if is_bundle(Path(DEFAULT_OUT)):
        yield DEFAULT_OUT, Path(DEFAULT_OUT)
    folder = models_folder()
    try:
        inside = sorted(
            path for path in folder.iterdir() if path.name[:1] != "." and is_bundle(path)
        )
    except OSError:
        return
    yield from ((path.name, path) for path in inside)
