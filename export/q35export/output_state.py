"""What stands at the place of an export's output, and what is left to do there.

Decides on the manifest and on whether the files are those that it lists; knows no graph and no
checkpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from q35chat.bundle.bundle import (
    MANIFEST_NAME,
    PROCESSOR_FOLDER,
    Bundle,
    DamagedFile,
    Manifest,
    is_bundle,
)
from q35chat.errors import (
    BundleError,
    ExportError,
    OccupiedError,
    Option,
    Q35Error,
    Remedy,
    UsageError,
)
from q35chat.text import quoted, readable_size
from q35export.components import OLDER_OPTIONS, component_options, shared_options
from q35export.plan import kept_files
from q35export.progress import Reporter
from q35export.request import COMPONENT_CHOICES, ExportRequest
from q35export.staging import LOCK_INSIDE, is_leftover

_OF_PRECISION = {"bits", "block_size", "calibration", "rounding"}
_Difference = tuple[object, object]
_NOTED_BYTES = 256 << 20
_OURS = {MANIFEST_NAME, PROCESSOR_FOLDER, *COMPONENT_CHOICES, LOCK_INSIDE, ".DS_Store"} - {"all"}
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Vacant:
    """Nothing, or an empty folder."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A bundle, as its manifest says."""

    bundle: Bundle


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A bundle whose manifest cannot be read."""

    error: BundleError


@dataclass(frozen=True, slots=True)
class Foreign:
    """What an export must not replace."""

    error: UsageError


OutputState = Vacant | Standing | Unreadable | Foreign


def place_of(out: Path) -> Path:
    """The absolute path, without links, that `out` names. Raises UsageError for none."""
    try:
        place = out.expanduser().resolve()
        os.fspath(place).encode()
        return place
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{Option.OUT} {str(out)!a} is not UTF-8", Remedy.ANOTHER_FOLDER
        ) from error
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{Option.OUT} {out} cannot be used ({error})", Remedy.ANOTHER_FOLDER
        ) from error


def inspect(out: Path) -> OutputState:
    """What stands at the absolute path `out`.

    An export replaces nothing, an empty folder, or a bundle with no foreign files at its top. What
    a killed run of ours left there is not foreign and goes with the bundle.
    """
    place = f"{Option.OUT} {out}"
    try:
        if not out.exists():
            return Vacant()
    except OSError as error:
        what = f"{place} cannot be used ({error.strerror})"
        return Foreign(UsageError(what, Remedy.ANOTHER_FOLDER))
    if not out.is_dir():
        return Foreign(UsageError(f"{place} is a file", Remedy.ANOTHER_FOLDER))
    names = sorted(path.name for path in out.iterdir())
    return _inspect_folder(out, place, names) if names else Vacant()


def _inspect_folder(out: Path, place: str, names: list[str]) -> OutputState:
    if not is_bundle(out):
        what = f"{place} is not empty and not a bundle (it holds {names[0]})"
        return Foreign(UsageError(what, Remedy.EMPTY_FOLDER))
    foreign = [name for name in names if name not in _OURS and not is_leftover(name)]
    if foreign:
        what = (
            f"{place} holds {foreign[0]}, which no export wrote and replacing the bundle would "
            "delete"
        )
        return Foreign(UsageError(what, Remedy.MOVE_AWAY))
    try:
        return Standing(Bundle.open(out, check="names"))
    except BundleError as error:
        return Unreadable(error)


def check_replaceable(out: Path) -> None:
    """Refuse, with UsageError, a folder that cannot be replaced as a whole: a mount point, as a
    container's volume is."""
    if is_mount_point(out):
        raise UsageError(
            f"{Option.OUT} {out} is a mount point, and an export replaces its folder as a whole",
            Remedy.FOLDER_INSIDE,
            folder=quoted(str(out / "model")),
        )


def is_complete(state: OutputState, request: ExportRequest, fingerprint: str) -> bool:
    """Whether what stands there is what `request` asks for, by its manifest.

    `fingerprint` is that of the checkpoint. False where nothing stands there, where it is to be
    replaced anyway, or where only components are missing that `request` adds. Raises OccupiedError
    for a bundle with other options, BundleError for a manifest that cannot be read, UsageError for
    what must not be replaced.
    """
    match state:
        case Foreign(error):
            raise error
        case Unreadable(broken) if not request.force:
            raise broken
        case Standing(bundle) if not request.force:
            request = _as_seen(request, bundle)
            differences = _differences(bundle.manifest, request, fingerprint)
            if differences:
                raise OccupiedError(
                    f"{bundle.path} holds {differences}", Remedy.REPLACE_OR_ANOTHER_FOLDER
                )
            return all(component in bundle.manifest.graphs for component in request.components)
    return False


def _as_seen(request: ExportRequest, bundle: Bundle) -> ExportRequest:
    """The request as it is of the model in `bundle`, which may see no pictures."""
    return replace(request, pictures=bundle.manifest.model.image_token_id is not None)


def left_to_do(
    state: OutputState, request: ExportRequest, fingerprint: str, reporter: Reporter
) -> ExportRequest | None:
    """The export that makes of what stands there what `request` asks for; None where it is there
    already and whole.

    Every byte of a complete bundle is read. One damaged component is exported alone, and the others
    are kept. Raises as `is_complete`, and ExportError where a component is damaged that `request`
    leaves as it is.
    """
    if not is_complete(state, request, fingerprint) or not isinstance(state, Standing):
        return request
    bundle = state.bundle
    request = _as_seen(request, bundle)
    size = sum(entry.size for entry in bundle.manifest.files.values())
    if size >= _NOTED_BYTES:
        reporter.note(f"checking {readable_size(size)} in {bundle.path}")
    found = tuple(bundle.damages("full"))
    if not found:
        return None
    parts = {damage.name.partition("/")[0] for damage in found}
    if parts - {PROCESSOR_FOLDER, *request.components}:
        raise _cannot_keep(request, bundle, found)
    hit = [name for name in request.components if name in parts] or list(request.components[:1])
    for damage in found:
        what = f"{bundle.path / damage.name} {damage.what}"
        reporter.note(f"{what}; {' and '.join(hit)} is exported again")
    request = replace(request, force=True)
    if len(hit) > 1 or len(request.components) == 1:
        return request
    return replace(request, component=hit[0], mtp=request.mtp and hit[0] != "vision")


def bundle_to_keep(state: OutputState, request: ExportRequest, fingerprint: str) -> Bundle | None:
    """The bundle whose other component an export of one component keeps, if there is any.

    Raises ExportError when it is damaged or was made from another checkpoint or for another
    target, so that the two components would not fit each other.
    """
    match state:
        case _ if request.component == "all":
            return None
        case Unreadable(broken):
            raise broken
        case Standing(bundle):
            manifest = bundle.manifest
        case _:
            return None
    if found := tuple(bundle.damages("sizes", kept_files(bundle, request))):
        raise _cannot_keep(request, bundle, found)
    if (manifest.source.fingerprint, manifest.target) != (fingerprint, request.runs_on):
        raise ExportError(
            f"{bundle.path} was made from {manifest.source.name} for {manifest.target}, not from "
            f"this checkpoint for {request.runs_on}: its other component does not fit",
            Remedy.WHOLE_BUNDLE,
        )
    _check_shared(manifest, request)
    return bundle


def _cannot_keep(request: ExportRequest, bundle: Bundle, found: Iterable[DamagedFile]) -> Q35Error:
    written = tuple(f"{part}/" for part in (PROCESSOR_FOLDER, *request.components))
    damage = next(damage for damage in found if not damage.name.startswith(written))
    return ExportError(
        f"{Option.COMPONENT} {request.component} keeps the rest of the bundle, but "
        f"{bundle.path / damage.name} {damage.what}",
        Remedy.REPLACE_WHOLE,
    )


def _check_shared(manifest: Manifest, request: ExportRequest) -> None:
    wanted = shared_options(component_options(request, request.component))
    for component in manifest.options.keys() - {request.component}:
        there = shared_options(manifest.options[component])
        for name in there.keys() & wanted.keys():
            if there[name] != wanted[name]:
                raise ExportError(
                    f"the {component} graph that is kept has {name} {there[name]}, "
                    f"{request.component} would have {wanted[name]}: they would not work together",
                    Remedy.WHOLE_BUNDLE,
                )


def _differences(manifest: Manifest, request: ExportRequest, fingerprint: str) -> str:
    """What stands there, and what of it is not what `request` asks for; empty where all is."""
    if manifest.source.fingerprint != fingerprint:
        return f"a bundle of another source ({manifest.source.name}, or its files have changed)"
    if manifest.target != request.runs_on:
        return f"a bundle for {manifest.target}, not for {request.runs_on}"
    found: dict[str, dict[str, _Difference]] = {}
    for component in request.components:
        if component not in manifest.options:
            continue
        there = OLDER_OPTIONS | dict(manifest.options[component])
        asked = component_options(request, component)
        for name, wanted in asked.items():
            if name in _OF_PRECISION and there.get("precision") != asked["precision"]:
                continue
            difference = (there.get(name, wanted), wanted)
            found.setdefault(name, {})[component] = difference
    return _said(found)


def _said(found: Mapping[str, Mapping[str, _Difference]]) -> str:
    """Options by name and component, what they are and what they should be: what differs, and only
    once where it does so everywhere."""
    bundle, others = "a bundle", []
    for name, parts in found.items():
        differing = {part: pair for part, pair in parts.items() if pair[0] != pair[1]}
        if len(differing) == len(parts) and len(set(differing.values())) == 1:
            ((there, wanted),) = set(differing.values())
            if name == "precision":
                bundle = f"an {there} bundle, not {wanted}"
            else:
                what = f"of {there} slots" if name == "max_seq_len" else f"with {name} {there}"
                others.append(f"{what}, not {wanted}")
        else:
            others += [
                f"with {part} {name} {there}, not {wanted}"
                for part, (there, wanted) in differing.items()
            ]
    if bundle == "a bundle":
        return f"{bundle} {', '.join(others)}" if others else ""
    return ", ".join((bundle, *others))


def is_mount_point(folder: Path, table: Path = _MOUNTS) -> bool:
    """Whether something is mounted at `folder`, an absolute path without links.

    `table` is the kernel's list: a folder that is mounted from the same file system looks like any
    other without it.
    """
    if os.path.ismount(folder):
        return True
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return False
    places = (line.split()[_MOUNT_POINT] for line in lines if len(line.split()) > _MOUNT_POINT)
    return os.fsencode(folder) in {
        _ESCAPE.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), place) for place in places
    }
