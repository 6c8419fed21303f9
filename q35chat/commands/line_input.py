"""The lines of a conversation without a screen: typed at a prompt, or read from a script.

Knows what a line may hold; knows nothing of what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

from q35chat.commands.prompt_input import MAX_PROMPT_BYTES, checked_argument, checked_text
from q35chat.errors import UsageError

_LINE_END_BYTES = 2


def script_lines(stdin: BinaryIO) -> Iterator[str]:
    """The lines of `stdin`, each as soon as it is there, without their ends.

    Raises UsageError, with the line's number, for one over `MAX_PROMPT_BYTES` and for bytes that
    are not UTF-8.
    """
    number = 0
    while line := stdin.readline(MAX_PROMPT_BYTES + _LINE_END_BYTES):
        number += 1
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        yield checked_text(text, f"line {number} on stdin")


def typed_lines(say: Callable[[str], None]) -> Iterator[str]:
    """What is typed, line by line, until Ctrl+D; `say` tells what could not be taken."""
    with suppress(ImportError):
        import readline  # noqa: F401, PLC0415  (gives input() editing and history)
    while True:
        try:
            line = checked_argument(input("> "), "the line")
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("\n(Ctrl+D leaves)")
        except UnicodeDecodeError as error:
            say(f"q35chat: the line is not {error.encoding}; type it again")
        except UsageError as error:
            say(f"q35chat: {error}")
        else:
            yield line
