"""How a failure leaves the process: one line on stderr and an exit code.

0 done, 1 failure, 2 wrong usage, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import errno
import os
import traceback
from contextlib import suppress

import typer

from q35chat.commands.console import Console
from q35chat.commands.memory import limited_memory
from q35chat.errors import Q35Error
from q35chat.processes import program

INTERRUPTED = 130
BROKEN_PIPE = 141

_SHOWS_WHERE = "--debug shows where"
_REFUSED_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Writing to an open file failed. Every file of our own is written under its name, so where no
name is known it was a standard stream."""


def report(error: BaseException, console: Console, *, debug: bool) -> int:
    """Say on stderr what went wrong, with the traceback if `debug`, and return the exit code."""
    code, said = _told(error)
    with suppress(OSError):  # stderr may be what cannot be written
        if debug and not isinstance(error, KeyboardInterrupt):
            console.say("".join(traceback.format_exception(error)).rstrip("\n"))
        if said:
            console.note(f"q35chat: {said}")
    return code


def _told(error: BaseException) -> tuple[int, str]:
    """The exit code, and one line; none where nothing is to be said."""
    match error:
        # Python's own locks say that they are not held where an interrupt comes between two steps.
        case KeyboardInterrupt() | typer.Abort() | RuntimeError(__context__=KeyboardInterrupt()):
            return INTERRUPTED, ""
        case BrokenPipeError():
            return BROKEN_PIPE, ""
        case Q35Error():
            return error.exit_code, f"{error}{limited_memory() if error.exit_code == 1 else ''}"
        case typer.TyperException():
            return error.exit_code, _wrong_usage(error)
        case MemoryError():
            advice = "; close other programs or export at --precision int4"
            return 1, f"out of memory{limited_memory() or advice}"
        case _:
            limited = limited_memory()  # then what a library says of itself misleads
            what = f"{type(error).__name__}, perhaps for want of memory"
            return 1, f"{what}{limited}" if limited else _unexpected(error)


def _wrong_usage(error: typer.TyperException) -> str:
    """What is wrong and where to read on; nothing where the help itself was the answer."""
    said = error.format_message().rstrip(".")
    return f"{said}{'' if said.endswith('?') else '.'} {_help_hint(error)}" if said else ""


def _unexpected(error: BaseException) -> str:
    """What nobody foresaw, or what the system refused."""
    match error:
        case OSError(strerror=str(why), filename=str() | bytes() | os.PathLike() as path):
            return f"cannot use {os.fsdecode(path)}: {why}; {_SHOWS_WHERE}"
        case OSError(strerror=str(why), errno=number) if number in _REFUSED_OUTPUT:
            return f"cannot write the output: {why}; make room, or send it to another place"
        case _:
            return f"unexpected {type(error).__name__}: {error}; {_SHOWS_WHERE}"


def _help_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else ""
    return f"Try {' '.join((program(), *path.split()[1:]))} --help"
