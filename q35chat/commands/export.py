"""`q35chat export`: a checkpoint in, a bundle out, compared with transformers at the end."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from q35chat.bundle.bundle import Bundle
from q35chat.commands.console import Console
from q35chat.commands.next_command import as_typed_here, lacking, next_step
from q35chat.commands.verify import compare
from q35chat.errors import UsageError
from q35chat.processes import install_command
from q35chat.text import readable_size
from q35export.pipeline import export
from q35export.plan import PROGRAM_BYTES
from q35export.progress import reporter_for
from q35export.request import COMPONENTS, ExportPlan, ExportRequest
from q35export.source import local_folder, resolve


def export_model(request: ExportRequest, console: Console, *, verify: bool | None) -> int:
    """Export as `request` says; the exit code. `verify` None: where torch is installed.

    Raises Q35Error.
    """
    _check(request, verify=verify)
    has_torch = find_spec("torch") is not None
    if verify and not has_torch:
        raise UsageError(f"--verify needs PyTorch: {install_command('torch')}, or use --no-verify")
    with reporter_for(console.err) as reporter:
        result = export(request, reporter)
    if result.status == "planned" and result.plan:
        _print_plan(result.plan, console)
    console.note(result.message)
    if result.status == "planned":
        return 0
    manifest = Bundle.open(result.out).manifest
    folder = as_typed_here(result.out)
    for line in (*lacking(folder, manifest, request.model), next_step(folder, manifest)):
        if line:
            console.note(line)
    wanted = verify
    if verify is None:
        wanted = has_torch and result.status == "exported" and _is_whole(result.out)
    if not wanted:
        return 0
    checkpoint = result.checkpoint or resolve(request, console.note).folder
    return _compared(result.out, checkpoint, console, asked_for=verify is True)


def _check(request: ExportRequest, *, verify: bool | None) -> None:
    """Refuse options that would do nothing. Raises UsageError."""
    if verify and request.dry_run:
        raise UsageError("--dry-run writes nothing to compare; drop --verify or it")
    hub = {"--revision": request.revision, "--source": request.source != ExportRequest().source}
    for option, given in hub.items():
        if given and local_folder(request.model) is not None:
            raise UsageError(f"{option} is for a hub id, and {request.model} is a folder; drop it")


def _compared(bundle: Path, checkpoint: Path, console: Console, *, asked_for: bool) -> int:
    """Compare; one that nobody asked for and that does not fit is left out with a note."""
    from q35export.verify import NotComparableError  # noqa: PLC0415

    try:
        return compare(bundle, checkpoint, console)
    except NotComparableError as error:
        if asked_for:
            raise
        console.note(f"not compared with the checkpoint: {error}")
        return 0


def _is_whole(bundle: Path) -> bool:
    """Whether every component is there, so that there is something to compare."""
    manifest = Bundle.open(bundle).manifest
    return set(COMPONENTS[manifest.target]) <= set(manifest.graphs)


def _print_plan(plan: ExportPlan, console: Console) -> None:
    rows = [(file.path, file.size) for file in plan.files]
    rows += [(f"{file.path} (kept)", file.size) for file in plan.kept]
    width = max((len(path) for path, _ in rows), default=0)
    for path, size in rows:
        console.show(f"{path:{width}}  {readable_size(size):>10}")
    memory = plan.memory
    console.show(
        f"to write: {readable_size(plan.total)} in {plan.out}\n"
        f"memory for a chat: about {readable_size(memory.total + PROGRAM_BYTES)} "
        f"(weights {readable_size(memory.weights)}, states {readable_size(memory.states)}, "
        f"KV cache {readable_size(memory.kv_cache)}, program {readable_size(PROGRAM_BYTES)})"
    )
    console.out.flush()
