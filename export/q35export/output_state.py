"""What already stands at `--out`, and what an export may do with it.

Decides on the manifest and on whether the files are those that it lists; knows no graph and no
checkpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from q35chat.bundle.bundle import (
    MANIFEST_NAME,
    PROCESSOR_FOLDER,
    Bundle,
    Damage,
    Manifest,
    is_bundle,
)
from q35chat.errors import ExportError, OccupiedError, UsageError
from q35chat.text import quoted, readable_size
from q35export.components import OLDER_OPTIONS, component_options, shared_options
from q35export.plan import kept_files
from q35export.progress import Reporter
from q35export.request import COMPONENT_CHOICES, ExportRequest
from q35export.staging import LOCK_INSIDE, is_leftover

_Difference = tuple[object, object]
_NOTED_BYTES = 256 << 20
_OURS = {MANIFEST_NAME, PROCESSOR_FOLDER, *COMPONENT_CHOICES, LOCK_INSIDE, ".DS_Store"} - {"all"}

_TABLE: Final = Path("/proc/self/mountinfo")
_PLACE: Final = 4
_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


def check_place(out: Path) -> None:
    """Refuse, with UsageError, a place that an export must not replace: anything but nothing, an
    empty folder, or a bundle with no foreign files at its top. What a killed run of ours left there
    is not foreign and goes with the bundle."""
    try:
        if not out.exists():
            return
    except OSError as error:
        raise UsageError(
            f"--out {out} cannot be used ({error.strerror}); choose another --out"
        ) from error
    if not out.is_dir():
        raise UsageError(f"--out {out} is a file; choose another --out")
    names = sorted(path.name for path in out.iterdir())
    if names and not is_bundle(out):
        raise UsageError(
            f"--out {out} is not empty and not a bundle (it holds {names[0]}); "
            "choose another --out, or empty the folder yourself"
        )
    foreign = [name for name in names if name not in _OURS and not is_leftover(name)]
    if foreign:
        raise UsageError(
            f"--out {out} holds {foreign[0]}, which no export wrote and replacing the bundle "
            "would delete; move it away or choose another --out"
        )


def check_replaceable(out: Path) -> None:
    """Refuse, with UsageError, a folder that cannot be replaced as a whole: a mount point, as a
    container's volume is."""
    if is_mount_point(out):
        raise UsageError(
            f"--out {out} is a mount point, and an export replaces its folder as a whole; give a "
            f"folder inside it, such as --out {quoted(str(out / 'model'))}"
        )


def place_of(out: Path) -> Path:
    """The absolute path, without links, that `--out` names. Raises UsageError for none."""
    try:
        return out.expanduser().resolve()
    except (OSError, RuntimeError) as error:
        raise UsageError(f"--out {out} cannot be used ({error}); choose another --out") from error


def is_up_to_date(out: Path, request: ExportRequest, target: str, fingerprint: str) -> bool:
    """Whether the bundle at `out` is what `request` asks for, by its manifest.

    False where nothing stands there, with `--force`, or where only components are missing that
    `request` adds. Raises OccupiedError for a bundle with other options, BundleError for a manifest
    that cannot be read.
    """
    if request.force or not is_bundle(out):
        return False
    manifest = Bundle.open(out, check="names").manifest
    differences = _differences(manifest, request, target, fingerprint)
    if differences:
        raise OccupiedError(
            f"{out} holds {differences}; add --force to replace it or choose another --out"
        )
    return all(component in manifest.graphs for component in request.components)


def repairs(out: Path, request: ExportRequest, reporter: Reporter) -> ExportRequest | None:
    """The export that makes the up-to-date bundle at `out` whole again; None where it is whole.

    Every byte is read. One damaged component is exported alone, and the others are kept. Raises
    ExportError where a component is damaged that `request` leaves as it is.
    """
    bundle = Bundle.open(out, check="names")
    size = sum(entry.size for entry in bundle.manifest.files.values())
    if size >= _NOTED_BYTES:
        reporter.note(f"checking {readable_size(size)} in {out}")
    found = tuple(bundle.damages("full"))
    if not found:
        return None
    parts = {damage.name.partition("/")[0] for damage in found}
    if parts - {PROCESSOR_FOLDER, *request.components}:
        raise _cannot_keep(request, out, found)
    hit = [name for name in request.components if name in parts] or list(request.components[:1])
    for damage in found:
        reporter.note(f"{out / damage.name} {damage.what}; {' and '.join(hit)} is exported again")
    request = replace(request, force=True)
    if len(hit) > 1 or len(request.components) == 1:
        return request
    return replace(request, component=hit[0], mtp=request.mtp and hit[0] != "vision")


def bundle_to_keep(
    out: Path, request: ExportRequest, target: str, fingerprint: str
) -> Bundle | None:
    """The bundle whose other component an export of one component keeps, if there is any.

    Raises ExportError when it is damaged or was made from another checkpoint or for another
    target, so that the two components would not fit each other.
    """
    if request.component == "all" or not is_bundle(out):
        return None
    bundle = Bundle.open(out, check="names")
    if found := tuple(bundle.damages("sizes", kept_files(bundle, request))):
        raise _cannot_keep(request, out, found)
    manifest = bundle.manifest
    if manifest.source.fingerprint != fingerprint or manifest.target != target:
        raise ExportError(
            f"{out} was made from {manifest.source.name} for {manifest.target}, not from this "
            f"checkpoint for {target}: its other component does not fit; use --component all"
        )
    _check_shared(manifest, request)
    return bundle


def _cannot_keep(request: ExportRequest, out: Path, found: Iterable[Damage]) -> ExportError:
    written = tuple(f"{part}/" for part in (PROCESSOR_FOLDER, *request.components))
    damage = next(damage for damage in found if not damage.name.startswith(written))
    return ExportError(
        f"--component {request.component} keeps the rest of the bundle, but "
        f"{out / damage.name} {damage.what}; use --component all with --force"
    )


def _check_shared(manifest: Manifest, request: ExportRequest) -> None:
    wanted = shared_options(component_options(request, request.component))
    for component in manifest.options.keys() - {request.component}:
        there = shared_options(manifest.options[component])
        for name in there.keys() & wanted.keys():
            if there[name] != wanted[name]:
                raise ExportError(
                    f"the {component} graph that is kept has {name} {there[name]}, "
                    f"{request.component} would have {wanted[name]}: they would not work together; "
                    "use --component all"
                )


def _differences(manifest: Manifest, request: ExportRequest, target: str, fingerprint: str) -> str:
    """What stands there, and what of it is not what `request` asks for; empty where all is."""
    if manifest.source.fingerprint != fingerprint:
        return f"a bundle of another source ({manifest.source.name}, or its files have changed)"
    if manifest.target != target:
        return f"a bundle for {manifest.target}, not for {target}"
    found: dict[str, dict[str, _Difference]] = {}
    for component in request.components:
        if component not in manifest.options:
            continue
        there = OLDER_OPTIONS | dict(manifest.options[component])
        for name, wanted in component_options(request, component).items():
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


def is_mount_point(folder: Path, table: Path = _TABLE) -> bool:
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
    places = (line.split()[_PLACE] for line in lines if len(line.split()) > _PLACE)
    return os.fsencode(folder) in {_ESCAPE.sub(_byte, place) for place in places}


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8) & 0xFF])
