"""How a failure leaves the process: one line on stderr and an exit code.

0 done, 1 failure, 2 wrong usage, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import traceback

import typer

from q35chat.commands.console import Console
from q35chat.errors import Q35Error

INTERRUPTED = 130
BROKEN_PIPE = 141


def report(error: BaseException, console: Console, *, debug: bool) -> int:
    """Say on stderr what went wrong, with the traceback if `debug`, and return the exit code."""
    if debug and not isinstance(error, KeyboardInterrupt):
        console.err.write("".join(traceback.format_exception(error)))
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            return BROKEN_PIPE
        case Q35Error():
            console.note(f"q35chat: {error}")
            return error.exit_code
        case typer.TyperException():
            console.note(f"q35chat: {error.format_message().rstrip('.')}. {_help_hint(error)}")
            return error.exit_code
        case MemoryError():
            console.note(
                "q35chat: out of memory; close other programs or export at --precision int4"
            )
            return 1
        case _:
            kind = type(error).__name__
            console.note(f"q35chat: unexpected {kind}: {error}; --debug shows where")
            return 1


def _help_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"Try {context.command_path if context else 'q35chat'} --help"
