"""What already stands at `--out`, and what an export may do with it.

Decides on the manifest alone; reads no graph and no checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from q35chat.bundle import MANIFEST_NAME, PROCESSOR_FOLDER, Bundle, Manifest, is_bundle
from q35chat.errors import BundleError, ExportError, OccupiedError, UsageError
from q35export.components import OLDER_OPTIONS, component_options, shared_options
from q35export.recording import is_leftover
from q35export.request import COMPONENT_CHOICES, ExportRequest
from q35export.staging import LOCK_INSIDE

_OURS = {MANIFEST_NAME, PROCESSOR_FOLDER, *COMPONENT_CHOICES, LOCK_INSIDE, ".DS_Store"} - {"all"}


def check_place(out: Path) -> None:
    """Refuse, with UsageError, a place that an export must not replace: anything but nothing, an
    empty folder, or a bundle with no foreign files at its top. What a killed run of ours left there
    is not foreign and goes with the bundle."""
    if not out.exists():
        return
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


def is_up_to_date(out: Path, request: ExportRequest, target: str, fingerprint: str) -> bool:
    """Whether the bundle at `out` is what `request` asks for.

    False where nothing stands there, with `--force`, or where only components are missing that
    `request` adds. Raises OccupiedError for a bundle with other options, BundleError for a damaged
    one.
    """
    if request.force or not is_bundle(out):
        return False
    manifest = Bundle.open(out).manifest
    differences = _differences(manifest, request, target, fingerprint)
    if differences:
        raise OccupiedError(
            f"{out} holds a bundle with {', '.join(differences)}; "
            "add --force to replace it or choose another --out"
        )
    return all(component in manifest.graphs for component in request.components)


def bundle_to_keep(
    out: Path, request: ExportRequest, target: str, fingerprint: str
) -> Bundle | None:
    """The bundle whose other component an export of one component keeps, if there is any.

    Raises ExportError when it is damaged or was made from another checkpoint or for another
    target, so that the two components would not fit each other.
    """
    if request.component == "all" or not is_bundle(out):
        return None
    try:
        bundle = Bundle.open(out)
    except BundleError as error:
        raise ExportError(
            f"--component {request.component} keeps the rest of the bundle, but {error}, "
            "with --component all"
        ) from error
    manifest = bundle.manifest
    if manifest.source.fingerprint != fingerprint or manifest.target != target:
        raise ExportError(
            f"{out} was made from {manifest.source.name} for {manifest.target}, not from this "
            f"checkpoint for {target}: its other component does not fit; use --component all"
        )
    _check_shared(manifest, request)
    return bundle


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


def _differences(
    manifest: Manifest, request: ExportRequest, target: str, fingerprint: str
) -> list[str]:
    found = []
    if manifest.source.fingerprint != fingerprint:
        found.append(f"another source ({manifest.source.name}, or its files have changed)")
    if manifest.target != target:
        found.append(f"target {manifest.target} instead of {target}")
    for component in request.components:
        if component not in manifest.options:
            continue
        there = OLDER_OPTIONS | dict(manifest.options[component])
        for name, value in component_options(request, component).items():
            if name in there and there[name] != value:
                found.append(f"{component} {name} {there[name]} instead of {value}")
    return found
