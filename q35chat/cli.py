"""The command line: arguments in, calls out, exit codes. No logic, and nothing heavy imported.

What a command does lies in `commands`, which is imported when it runs.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from q35chat import __version__
from q35chat.commands import options as opt
from q35chat.commands import sessions
from q35chat.commands.bench_line import bench
from q35chat.commands.console import Console
from q35chat.commands.export_line import export
from q35chat.commands.failures import BROKEN_PIPE, report
from q35chat.commands.npu import NpuOptions, protect_screen
from q35chat.commands.streaming import work_is_running

app = typer.Typer(
    name="q35chat",
    help="Chat with Qwen3.5 on this machine, with text and pictures. Nothing leaves it.",
    epilog="Without a command the chat opens. Start with: q35chat ask 'Hello'",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(sessions.app)
app.command()(bench)


@dataclass
class Invocation:
    """What one run of the command line carries: it is the context's `obj`."""

    debug: bool = False


def main() -> None:
    """The console script: run the command of `sys.argv` and leave with its exit code."""
    protect_screen()
    code = run(sys.argv[1:])
    _flush(sys.stdout)
    _flush(sys.stderr)
    if work_is_running():
        os._exit(code)  # a thread inside native code would hold up or crash a normal exit
    sys.exit(code)


def run(arguments: Sequence[str], console: Console | None = None) -> int:
    """Run one command line; the exit code. Failures are shown, never raised."""
    console = console or Console.standard()
    invocation = Invocation()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = app(list(arguments), prog_name="q35chat", standalone_mode=False, obj=invocation)
        console.out.flush()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer turns it into an exit
            return BROKEN_PIPE
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001  (the one place where failures end)
        return report(error, console, debug=invocation.debug)
    return code if isinstance(code, int) else 0


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"q35chat {__version__}")
        raise typer.Exit


@app.command()
def chat(
    model_dir: opt.ModelDir = None,
    max_image_tokens: opt.MaxImageTokens = None,
    threads: opt.Threads = None,
    session: opt.Session = None,
    image: opt.Images = None,
    prompt: opt.FirstPrompt = "",
    pictures: opt.Pictures = None,
    no_images: opt.NoImages = False,
    thinking_budget: opt.ThinkingBudget = None,
    snapshot_mib: opt.SnapshotMib = opt.DEFAULT_SNAPSHOT_MIB,
    speculate: opt.Speculate = None,
    device_id: opt.DeviceId = 0,
    residency: opt.Residency = "auto",
    host_states: opt.HostStates = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Line by line, for a terminal without a screen.")
    ] = False,
    _debug: opt.Debug = False,
) -> int:
    """Open the chat; the same as q35chat without a command."""
    from q35chat.commands.chat import ChatOptions, open_chat  # noqa: PLC0415

    asked = ChatOptions(
        model_dir=model_dir,
        max_image_tokens=max_image_tokens,
        threads=threads,
        plain=plain,
        session=session,
        images=tuple(image or ()),
        prompt=prompt,
        pictures="none" if no_images else pictures,
        npu=NpuOptions(device_id, residency, host_states),
        snapshot_mib=snapshot_mib,
        speculate=speculate,
        thinking_budget=thinking_budget,
    )
    return open_chat(asked, Console.standard())


@app.callback(invoke_without_command=True)
@opt.with_options_of(chat)
def chat_by_default(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
    **options: Any,
) -> int:
    """Chat with Qwen3.5 on this machine, with text and pictures. Nothing leaves it."""
    if not context.invoked_subcommand:
        return chat(**options)
    if set(opt.given_options(context)) - {"_debug"}:
        raise typer.BadParameter(f"put the options after {context.invoked_subcommand}")
    return 0


@app.command()
def ask(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="The question. Text that is piped in comes after it; without a question, or "
            "with -, that text is the question."
        ),
    ] = None,
    image: opt.Images = None,
    system: opt.System = None,
    thinking: opt.Thinking = None,
    thinking_budget: opt.ThinkingBudget = None,
    max_new_tokens: opt.MaxNewTokens = None,
    stop: opt.Stop = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show timings on stderr.")] = False,
    continues: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on in the latest chat.")
    ] = False,
    session: opt.Session = None,
    keep: Annotated[
        bool,
        typer.Option(
            " /--no-save",
            help="Do not keep this question and its answer.",
            show_default=False,
        ),
    ] = True,
    temperature: opt.Temperature = None,
    top_p: opt.TopP = None,
    top_k: opt.TopK = None,
    min_p: opt.MinP = None,
    presence_penalty: opt.PresencePenalty = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    seed: opt.Seed = None,
    greedy: opt.Greedy = False,
    model_dir: opt.ModelDir = None,
    max_image_tokens: opt.MaxImageTokens = None,
    threads: opt.Threads = None,
    snapshot_mib: opt.SnapshotMib = opt.DEFAULT_SNAPSHOT_MIB,
    speculate: opt.Speculate = None,
    device_id: opt.DeviceId = 0,
    residency: opt.Residency = "auto",
    host_states: opt.HostStates = False,
    _debug: opt.Debug = False,
) -> int:
    """Answer one question; the answer streams to stdout, everything else to stderr."""
    from q35chat.commands.ask import AskOptions, ask_once  # noqa: PLC0415

    asked = AskOptions(
        prompt=prompt,
        images=tuple(image or ()),
        system=system,
        thinking=thinking,
        thinking_budget=thinking_budget,
        max_new_tokens=max_new_tokens,
        stop=tuple(stop or ()),
        as_json=as_json,
        stats=stats,
        sampling=_given(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            presence_penalty=presence_penalty,
            repetition_penalty=repetition_penalty,
            seed=seed,
        ),
        greedy=greedy,
        model_dir=model_dir,
        max_image_tokens=max_image_tokens,
        threads=threads,
        session=session,
        continues=continues,
        keep=keep,
        npu=NpuOptions(device_id, residency, host_states),
        snapshot_mib=snapshot_mib,
        speculate=speculate,
    )
    return ask_once(asked, Console.standard())


app.command()(export)


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")],
    against: Annotated[
        str, typer.Option("--against", help="The checkpoint it was made from: a folder or hub id.")
    ],
    _debug: opt.Debug = False,
) -> int:
    """Compare a bundle with transformers' own model (needs the extra: verify)."""
    from q35chat.commands.verify import verify_bundle  # noqa: PLC0415

    return verify_bundle(bundle, against, Console.standard())


@app.command()
def convert(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.")],
    converter: Annotated[
        str | None,
        typer.Option(help="The converter_lite to use. Default: that of PATH or MSLITE_HOME."),
    ] = None,
    drop_onnx: Annotated[
        bool, typer.Option("--drop-onnx", help="Delete the ONNX files of converted graphs.")
    ] = False,
    _debug: opt.Debug = False,
) -> int:
    """Make a bundle for ascend-310p ready for its NPU, or print the commands to do it there."""
    from q35chat.commands.convert import convert_bundle  # noqa: PLC0415

    console = Console.standard()
    return convert_bundle(bundle, console, converter=converter, drop_onnx=drop_onnx)


@app.command()
def doctor(
    model_dir: opt.ModelDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list what an NPU needs where there is none.")
    ] = False,
    operators: Annotated[
        bool,
        typer.Option("--operators", help="Try every kernel on the NPU and write a report to send."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--report", help="The file of --operators' report.")
    ] = None,
    device_id: opt.DeviceId = 0,
    _debug: opt.Debug = False,
) -> int:
    """Show what is here and what is missing; 1 where the chosen bundle cannot run."""
    from q35chat.commands.doctor import diagnose, run_doctor  # noqa: PLC0415

    if not operators:
        return run_doctor(model_dir, Console.standard(), as_json=as_json, everything=everything)
    from q35chat.commands.operators import try_operators  # noqa: PLC0415

    groups = diagnose(model_dir)
    return try_operators(Console.standard(), groups, device_id=device_id, report=out)


def _given(**values: Any) -> dict[str, Any]:
    """The options that were given, by name."""
    return {name: value for name, value in values.items() if value is not None}


def _flush(stream: TextIO | None) -> None:
    """Flush now, and drop what cannot be written: `run` has told of it."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
