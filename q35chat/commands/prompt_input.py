"""The prompt of a command: its argument, what is piped in, or one after the other; a picture may be
piped in instead."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from q35chat.errors import PictureError, UsageError
from q35chat.processes import program

MAX_PROMPT_BYTES = 1_000_000
STDIN = Path("-")
"""What stands for a picture on stdin."""
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


@contextmanager
def piped_pictures(paths: Sequence[Path], stdin: BinaryIO | None) -> Iterator[list[Path]]:
    """The paths of pictures, the one that is `STDIN` as a file that is there meanwhile.

    Raises UsageError where it is named twice and where nothing is piped in, PictureError for more
    than a picture may have.
    """
    if STDIN not in paths:
        yield list(paths)
        return
    if paths.count(STDIN) > 1:
        raise UsageError("stdin holds one picture; give -i - only once")
    if stdin is None or stdin.isatty():
        raise UsageError("-i - reads a picture from stdin; pipe one into it, or give its path")
    from q35chat.vision.loading import MAX_FILE_BYTES

    data = stdin.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise PictureError(
            f"the picture on stdin has more than the {MAX_FILE_BYTES >> 20} MB a picture may have; "
            "save it smaller"
        )
    with tempfile.TemporaryDirectory(prefix="q35chat-") as folder:
        file = Path(folder) / "stdin"
        file.write_bytes(data)
        yield [file if path == STDIN else path for path in paths]


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
