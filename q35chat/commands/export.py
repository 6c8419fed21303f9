"""`q35chat export`: a checkpoint in, a bundle out, compared with transformers at the end."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.commands.verify import compare
from q35chat.errors import Option, UsageError

if TYPE_CHECKING:
    from q35chat.bundle.bundle import Manifest
    from q35export.request import ExportPlan, ExportRequest


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What `export` takes: the fields of an `ExportRequest`, gears as text, and `verify`."""

    model: Annotated[str, typer.Argument(help="A checkpoint folder, or a hub id.")] = (
        "Qwen/Qwen3.5-4B"
    )
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", parser=opt.path, help="The bundle's folder. Default: out."),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write into the models folder, to be used by this name."),
    ] = None
    target: Annotated[
        str | None, typer.Option(help="What will run it. Default: the best that is found.")
    ] = None
    precision: Annotated[
        Literal["fp32", "int8", "int4", "int4-exact", "w8a8"] | None,
        typer.Option(
            help="cpu: how the weights are stored. Default: int4. int4-exact has more bits where "
            "they count. ascend-310p: w8a8 multiplies in int8. Default: as --dtype says."
        ),
    ] = None
    block_size: Annotated[
        int | None,
        typer.Option(
            help="cpu: how many weights share a scale, 32, 64 or 128. More is faster and smaller, "
            "and less exact. Default: 128 in large matrices, 32 in small ones."
        ),
    ] = None
    bits: Annotated[
        float | None,
        typer.Option(
            help="cpu: what a weight of a layer takes in int4, 4.25 to 8. What is more than 4.25 "
            "goes where this checkpoint needs it most. Default: 4.75, of int4-exact 6."
        ),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="cpu: round int4 and int8 for the inputs that the model really sees. Without it "
            "int4 is made in less time and keeps much less of the model.",
        ),
    ] = True
    calibration: Annotated[
        Path | None,
        typer.Option(
            parser=opt.path,
            help="int4, w8a8: a text to calibrate with. Default: one that comes along.",
        ),
    ] = None
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="cpu: DELETE the weight files of the checkpoint folder as their layers are done, "
            "so that bundle and checkpoint never lie beside each other whole.",
        ),
    ] = False
    max_seq_len: Annotated[
        int, typer.Option(help="The capacity: tokens of prompt and answer together.")
    ] = 2048
    component: Annotated[
        Literal["all", "vision", "text", "prefill", "decode"],
        typer.Option(help="Export only a part: vision and text, or vision, prefill and decode."),
    ] = "all"
    mtp: Annotated[
        bool,
        typer.Option(
            "--mtp",
            help="cpu: also the checkpoint's own head for guessing tokens (--speculate mtp). It "
            "makes the bundle larger and guesses cost time, so by default it is left out.",
        ),
    ] = False
    dtype: Annotated[
        Literal["fp16", "fp32"], typer.Option(help="ascend-310p: numbers outside the kernels.")
    ] = "fp16"
    gears: Annotated[
        str, typer.Option(help="ascend-310p: prompt lengths, such as 32,512. Default: as fit.")
    ] = ""
    one_graph: Annotated[
        bool,
        typer.Option(
            "--one-graph",
            help="ascend-310p: a prefill that also decodes, for chips without room for two graphs.",
        ),
    ] = False
    image_gears: Annotated[str, typer.Option(help="ascend-310p: picture tokens of a picture.")] = (
        "16,64,256"
    )
    fused_prefill: Annotated[
        bool, typer.Option(help="ascend-310p: the prompt through the NPU's own kernel.")
    ] = True
    fused_decode: Annotated[
        bool, typer.Option(help="ascend-310p: the answer, too; else the KV cache grows.")
    ] = True
    stateless_prefill: Annotated[
        bool,
        typer.Option("--stateless-prefill", help="ascend-310p: every prompt from its beginning."),
    ] = False
    step_tokens: Annotated[
        int,
        typer.Option(
            help="ascend-310p: tokens that one step may take, up to 8, so that guessed ones are "
            "computed together (--speculate)."
        ),
    ] = 1
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Compare with transformers at the end. Default: if torch is installed.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written and what it needs.")
    ] = False
    source: Annotated[
        Literal["huggingface", "modelscope"], typer.Option(help="The hub of a hub id.")
    ] = "huggingface"
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None


@opt.takes(ExportOptions)
def export(options: ExportOptions) -> int:
    """Turn a Qwen3.5 checkpoint into a bundle that the chat can run."""
    from q35export.request import ExportRequest, parse_gears

    asked: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    verify, one_graph, _ = map(asked.pop, ("verify", "one_graph", "name"))
    asked["out"] = _out(options)
    gears, image_gears = map(asked.pop, ("gears", "image_gears"))
    asked["gears"] = parse_gears(Option.GEARS, gears) if gears else ()
    if one_graph:
        asked["gears"] = _with_one_token(options, asked["gears"])
    asked["image_gears"] = parse_gears(Option.IMAGE_GEARS, image_gears)
    return export_model(ExportRequest(**asked), Console.standard(), verify=verify)


def _out(options: ExportOptions) -> Path:
    """Where the bundle goes. Raises UsageError."""
    from q35chat.bundle.library import place_of
    from q35chat.processes import DEFAULT_OUT

    if options.name is None:
        return options.out or Path(DEFAULT_OUT)
    if options.out is not None:
        raise UsageError("--name writes into the models folder, --out elsewhere; give one")
    return place_of(options.name)


def _with_one_token(options: ExportOptions, gears: tuple[int, ...]) -> tuple[int, ...]:
    """The gears, the usual ones where none were asked for, and that of one token. Raises UsageError
    for a prefill that could not decode."""
    from q35export.ascend.graphs.options import default_gears
    from q35export.request import W8A8

    for option, given in (
        ("--stateless-prefill", options.stateless_prefill),
        ("--no-fused-decode", not options.fused_decode),
        (f"--target {options.target}", options.target not in (None, "ascend-310p")),
    ):
        if given:
            raise UsageError(
                "--one-graph is for a prefill of ascend-310p that goes on from states; "
                f"drop it or {option}"
            )
    usual = default_gears(options.max_seq_len, w8a8=options.precision == W8A8)
    return tuple(sorted({1, *(gears or usual)}))


def export_model(request: ExportRequest, console: Console, *, verify: bool | None) -> int:
    """Export as `request` says; the exit code. `verify` None: where torch is installed.

    Raises Q35Error.
    """
    from q35chat.bundle.bundle import Bundle
    from q35chat.commands.next_command import as_typed_here, lacking, next_step
    from q35chat.processes import install_command
    from q35export.pipeline import export as run_export
    from q35export.progress import reporter_for
    from q35export.source import resolve

    _check(request, verify=verify)
    has_torch = find_spec("torch") is not None
    if verify and not has_torch:
        raise UsageError(f"--verify needs PyTorch: {install_command('torch')}, or use --no-verify")
    with reporter_for(console.err) as reporter:
        result = run_export(request, reporter)
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
        wanted = (
            has_torch and not request.stream and result.status == "exported" and _is_whole(manifest)
        )
    if not wanted:
        return 0
    checkpoint = result.checkpoint or resolve(request, console.note).folder
    return _compared(result.out, checkpoint, console, asked_for=verify is True)


def _check(request: ExportRequest, *, verify: bool | None) -> None:
    """Refuse options that would do nothing. Raises UsageError."""
    from q35export.request import ExportRequest
    from q35export.source import local_folder

    if verify and request.stream:
        raise UsageError("--stream leaves no checkpoint to compare with; drop --verify or it")
    if verify and request.dry_run:
        raise UsageError("--dry-run writes nothing to compare; drop --verify or it")
    if request.stream and local_folder(request.model) is None:
        raise UsageError(
            f"--stream is for a folder, and {request.model} is a hub id: download it with "
            f"`hf download {request.model} --local-dir FOLDER` and give the folder"
        )
    hub = {"--revision": request.revision, "--source": request.source != ExportRequest().source}
    for option, given in hub.items():
        if given and local_folder(request.model) is not None:
            raise UsageError(f"{option} is for a hub id, and {request.model} is a folder; drop it")


def _compared(bundle: Path, checkpoint: Path, console: Console, *, asked_for: bool) -> int:
    """Compare; one that nobody asked for and that does not fit is left out with a note."""
    from q35export.verify import NotComparableError

    try:
        return compare(bundle, checkpoint, console)
    except NotComparableError as error:
        if asked_for:
            raise
        console.note(f"not compared with the checkpoint: {error}")
        return 0


def _is_whole(manifest: Manifest) -> bool:
    """Whether every component is there, so that there is something to compare."""
    from q35export.request import COMPONENTS

    return set(COMPONENTS[manifest.target]) <= set(manifest.graphs)


def _print_plan(plan: ExportPlan, console: Console) -> None:
    import psutil

    from q35chat.text import readable_size
    from q35export.plan import PROGRAM_BYTES

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
    needed, there = memory.total + PROGRAM_BYTES, psutil.virtual_memory().total
    if needed > there:
        console.show(
            f"too much for this machine, which has {readable_size(there)} of memory: a chat with "
            "this bundle will be refused here"
        )
    console.out.flush()
