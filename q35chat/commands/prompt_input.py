"""The prompt of a command: from its argument, or from standard input."""

from __future__ import annotations

from typing import BinaryIO

from q35chat.errors import UsageError

MAX_PROMPT_BYTES = 1_000_000


def read_prompt(argument: str | None, stdin: BinaryIO | None) -> str:
    """The prompt's text: `argument`, or all of `stdin` where that is absent or "-".

    One trailing newline of piped text is dropped. Raises UsageError for no prompt, an empty one,
    one over `MAX_PROMPT_BYTES`, and bytes that are not UTF-8.
    """
    if argument is None or argument == "-":
        text = _from_stdin(stdin)
    else:
        text = _checked(argument.encode("utf-8", "surrogateescape"), "the prompt")
    if not text.strip():
        raise UsageError("the prompt is empty; say something, or pipe text into it")
    return text


def _from_stdin(stdin: BinaryIO | None) -> str:
    if stdin is None or stdin.isatty():
        raise UsageError('no prompt; try q35chat ask "Hello", or pipe text into it')
    text = _checked(stdin.read(MAX_PROMPT_BYTES + 1), "the text on stdin")
    return text.removesuffix("\n").removesuffix("\r")


def _checked(data: bytes, what: str) -> str:
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
