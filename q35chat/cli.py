"""The command line: arguments in, calls out, exit codes. No logic, and nothing heavy imported.

What a command does lies in `commands`, which is imported when it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, ClassVar, TextIO

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from q35chat import __version__
from q35chat.commands.chat import chat
from q35chat.commands.console import (
    Console,
    fill_closed_streams,
    forget_impossible_size,
    keep_answers_apart,
    protect_screen,
)
from q35chat.commands.failures import BROKEN_PIPE, report
from q35chat.commands.memory import require_memory
from q35chat.commands.options import given_options, with_options_of
from q35chat.commands.streaming import work_is_running
from q35chat.commands.wording import COMMAND_LINE
from q35chat.errors import UsageError, speak
from q35chat.processes import program


class ModelCommand(TyperCommand):
    """A command that loads the libraries of a model."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own)
        """Run it, where the shell gives it memory enough. Raises RuntimeFailure."""
        require_memory()
        return super().invoke(ctx)


class Commands(TyperGroup):
    """All commands, in the order of the help, each made when it is first asked for: the chat must
    not wait for the others. `commands/NAME.py` defines NAME, a function or a group."""

    NAMES: ClassVar = (
        "chat",
        "ask",
        "serve",
        "export",
        "verify",
        "convert",
        "bench",
        "doctor",
        "models",
        "sessions",
        "cache",
        "man",
    )
    ON_BUNDLES: ClassVar = frozenset({"export", "verify", "convert", "bench", "doctor", "serve"})
    WITHOUT_LIBRARIES: ClassVar = frozenset({"doctor", "cache"})

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: dict[str, Any] = dict.fromkeys(self.NAMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002  (typer's own)
        """The command `cmd_name`; None where there is none."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """The command that the first of `args` names. Raises a usage error.

        Many type their question after the program's name: they are told how to ask it. Those who
        would measure or make a server's model are told that this takes a bundle.
        """
        if args[0] in self.ON_BUNDLES and any(arg.split("=")[0] == "--endpoint" for arg in args):
            raise UsageError(
                f"{args[0]} works on a bundle on this machine, not on a server elsewhere; leave "
                "--endpoint out"
            )
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            word = args[0]
            if word[:1] != "-" and not get_close_matches(word, self.NAMES):
                advice = f'to ask something: {program()} ask "..."'
                error.message = f"{error.message.rstrip('.')}; {advice}"
            raise


def _command(name: str) -> Any:  # noqa: ANN401
    made = getattr(import_module(f"q35chat.commands.{name}"), name)
    if isinstance(made, typer.Typer):
        return get_command(made)
    alone = typer.Typer(
        rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False
    )
    kind = TyperCommand if name in Commands.WITHOUT_LIBRARIES else ModelCommand
    alone.command(name, cls=kind)(made)
    return get_command(alone)


def _as_markup(text: str) -> str:
    return text.replace("[", r"\[")


app = typer.Typer(
    name="q35chat",
    cls=Commands,
    help="Chat with Qwen3.5 on this machine, with text and pictures. Nothing leaves it, unless "
    "--endpoint names a server.",
    epilog=f"Without a command the chat opens. Start with: {_as_markup(program())} ask 'Hello'",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The console script: run the command of `sys.argv` and leave with its exit code."""
    fill_closed_streams()
    keep_answers_apart()
    protect_screen()
    forget_impossible_size()
    code = run(sys.argv[1:])
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who is impatient now ends what tidies up
    _flush(sys.stdout)
    _flush(sys.stderr)
    if work_is_running():
        os._exit(code)  # a thread inside native code would hold up or crash a normal exit
    sys.exit(code)


def run(arguments: Sequence[str], console: Console | None = None) -> int:
    """Run one command line; the exit code. Failures are shown, never raised."""
    console = console or Console.standard()
    carried = {"debug": False}
    speak(COMMAND_LINE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = app(list(arguments), prog_name="q35chat", standalone_mode=False, obj=carried)
        console.out.flush()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer turns it into an exit
            return BROKEN_PIPE
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:  # noqa: BLE001  (the one place where failures end)
        return report(error, console, debug=carried["debug"])
    return code if isinstance(code, int) else 0


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"q35chat {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
@with_options_of(chat)
def chat_by_default(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
    **options: Any,
) -> int:
    """Chat with Qwen3.5 on this machine, with text and pictures. Nothing leaves it, unless
    --endpoint names a server."""
    if not context.invoked_subcommand:
        require_memory()
        return chat(**options)
    if set(given_options(context)) - {"_debug"}:
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
