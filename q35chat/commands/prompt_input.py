"""The prompt of a command: its argument, what is piped in, or one after the other."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from q35chat.errors import UsageError
from q35chat.processes import program

MAX_PROMPT_BYTES = 1_000_000
_GAP = "\n\n"


def read_prompt(argument: str | None, stdin: BinaryIO | None, *, optional: bool = False) -> str:
    """The prompt's text: `argument` and, after an empty line, what is piped into `stdin`.

    Without an argument, or with "-", all of it comes from `stdin`. One trailing newline of piped
    text is dropped. An `optional` one may be empty, and is where nobody feeds `stdin`. Raises
    UsageError for no prompt, an empty one, one over `MAX_PROMPT_BYTES`, and bytes that are not
    UTF-8.
    """
    if argument is None and optional and (stdin is None or not is_piped(stdin)):
        return ""
    if argument is None or argument == "-":
        if stdin is None or stdin.isatty():
            raise UsageError(f'no prompt; try {program()} ask "Hello", or pipe text into it')
        parts = [_piped_text(stdin)]
    else:
        parts = [checked_argument(argument, "the prompt")]
        if stdin is not None and is_piped(stdin):
            parts.append(_piped_text(stdin))
    text = _GAP.join(part for part in parts if part.strip())
    if not text and not optional:
        raise UsageError("the prompt is empty; say something, or pipe text into it")
    if len(parts) > 1:
        checked_text(text.encode(), "the prompt with the text on stdin")
    return text


def is_piped(stdin: BinaryIO) -> bool:
    """Whether somebody feeds `stdin`: a file, a pipe or a socket, no terminal and no device."""
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _piped_text(stdin: BinaryIO) -> str:
    text = checked_text(stdin.read(MAX_PROMPT_BYTES + 1), "the text on stdin")
    return text.removesuffix("\n").removesuffix("\r")


def checked_argument(text: str, what: str) -> str:
    """`text` from the command line or the keyboard, where Python writes bytes that are not UTF-8 as
    surrogates. Raises UsageError as `checked_text` does."""
    return checked_text(text.encode("utf-8", "surrogateescape"), what)


def checked_text(data: bytes, what: str) -> str:
    """The text of `data`, which a message calls `what`.

    Raises UsageError for more than `MAX_PROMPT_BYTES` and for bytes that are not UTF-8.
    """
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(
            f"{what} is over the limit of {MAX_PROMPT_BYTES:,} bytes for one prompt; shorten it"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not UTF-8 (byte {error.start} is 0x{data[error.start]:02x}); convert it"
        ) from error
