"""The command line: arguments in, calls out, exit codes. No logic, and nothing heavy imported.

What a command does lies in `commands`, which is imported when it runs.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TextIO

import typer

from q35chat import __version__
from q35chat.commands import options as opt
from q35chat.commands.console import Console, forget_impossible_size
from q35chat.commands.failures import BROKEN_PIPE, report
from q35chat.commands.npu import NpuOptions, protect_screen
from q35chat.commands.on_demand import Group, Made
from q35chat.commands.streaming import work_is_running
from q35chat.processes import program


def _ask() -> Made:
    from q35chat.commands.ask_line import ask  # noqa: PLC0415

    return ask


def _bench() -> Made:
    from q35chat.commands.bench_line import bench  # noqa: PLC0415

    return bench


def _convert() -> Made:
    from q35chat.commands.bundle_lines import convert  # noqa: PLC0415

    return convert


def _doctor() -> Made:
    from q35chat.commands.bundle_lines import doctor  # noqa: PLC0415

    return doctor


def _export() -> Made:
    from q35chat.commands.export_line import export  # noqa: PLC0415

    return export


def _sessions() -> Made:
    from q35chat.commands.sessions import app as sessions  # noqa: PLC0415

    return sessions


def _verify() -> Made:
    from q35chat.commands.bundle_lines import verify  # noqa: PLC0415

    return verify


class Commands(Group):
    """All commands, in the order of the help."""

    makers: ClassVar = {
        "chat": lambda: chat,
        "ask": _ask,
        "export": _export,
        "verify": _verify,
        "convert": _convert,
        "bench": _bench,
        "doctor": _doctor,
        "sessions": _sessions,
    }

    def advice(self) -> str:
        """Many type their question after the program's name."""
        return f'to ask something: {program()} ask "..."'


def _as_markup(text: str) -> str:
    return text.replace("[", r"\[")


app = typer.Typer(
    name="q35chat",
    cls=Commands,
    help="Chat with Qwen3.5 on this machine, with text and pictures. Nothing leaves it.",
    epilog=f"Without a command the chat opens. Start with: {_as_markup(program())} ask 'Hello'",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass
class Invocation:
    """What one run of the command line carries: it is the context's `obj`."""

    debug: bool = False


def main() -> None:
    """The console script: run the command of `sys.argv` and leave with its exit code."""
    protect_screen()
    forget_impossible_size()
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


def chat(
    model_dir: opt.ModelDir = None,
    max_image_tokens: opt.MaxImageTokens = None,
    threads: opt.Threads = None,
    continues: opt.Continues = False,
    session: opt.Session = None,
    image: opt.Images = None,
    prompt: opt.FirstPrompt = "",
    pictures: opt.Pictures = None,
    no_images: opt.NoImages = False,
    thinking: opt.Thinking = None,
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
    from q35chat.commands.checks import check_pictures  # noqa: PLC0415

    check_pictures(pictures, none=no_images)
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
        thinking=thinking,
        thinking_budget=thinking_budget,
        continues=continues,
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


def _flush(stream: TextIO | None) -> None:
    """Flush now, and drop what cannot be written: `run` has told of it."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
