from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest

from q35chat.commands.prompt_input import MAX_PROMPT_BYTES, is_piped, read_prompt
from q35chat.errors import UsageError


class TerminalInput(BytesIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def piped(text: bytes) -> Iterator[BinaryIO]:
    """The reading end of a pipe into which all of `text` was written."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(text)
    with os.fdopen(reading, "rb") as stdin:
        yield stdin


def test_piped_text_comes_after_the_prompt() -> None:
    with piped("你好\nthere\n".encode()) as stdin:
        assert read_prompt("Summarise this:", stdin) == "Summarise this:\n\n你好\nthere"


def test_a_file_on_stdin_comes_after_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("tea\n")
    with (tmp_path / "notes.txt").open("rb") as stdin:
        assert read_prompt("What is it?", stdin) == "What is it?\n\ntea"


@pytest.mark.parametrize("text", [b"", b"\n", b"  \n"])
def test_an_empty_pipe_adds_nothing_to_a_prompt(text: bytes) -> None:
    with piped(text) as stdin:
        assert read_prompt("Hello", stdin) == "Hello"


def test_piped_text_is_the_prompt_where_the_argument_is_empty() -> None:
    with piped(b"Hello") as stdin:
        assert read_prompt("", stdin) == "Hello"


def test_a_terminal_or_a_device_is_left_alone() -> None:
    assert read_prompt("typed", TerminalInput(b"not read")) == "typed"
    with Path(os.devnull).open("rb") as device:
        assert not is_piped(device)
        assert read_prompt("typed", device) == "typed"


def test_prompt_and_pipe_together_have_one_limit(tmp_path: Path) -> None:
    half = tmp_path / "half.txt"
    half.write_bytes(b"a" * (MAX_PROMPT_BYTES - 10))
    with half.open("rb") as stdin:
        assert len(read_prompt("b" * 8, stdin)) == MAX_PROMPT_BYTES
    with (
        half.open("rb") as stdin,
        pytest.raises(UsageError, match="with the text on stdin is over"),
    ):
        read_prompt("b" * 9, stdin)


@pytest.mark.parametrize("argument", [None, "-"])
def test_stdin_is_read_where_no_prompt_is_given(argument: str | None) -> None:
    assert read_prompt(argument, BytesIO("你好\nthere\n".encode())) == "你好\nthere"


def test_inner_white_space_of_a_prompt_is_kept() -> None:
    assert read_prompt(None, BytesIO(b"  a\r\n\r\n")) == "  a\r\n"


@pytest.mark.parametrize("argument", ["", " \n\t "])
def test_an_empty_prompt_says_so(argument: str) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        read_prompt(argument, None)


def test_an_empty_pipe_says_so() -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        read_prompt(None, BytesIO(b"\n"))


@pytest.mark.parametrize("stdin", [None, TerminalInput(b"ignored")])
def test_no_prompt_and_no_pipe_shows_how(stdin: BytesIO | None) -> None:
    with pytest.raises(UsageError, match="no prompt; try q35chat ask"):
        read_prompt(None, stdin)


def test_a_prompt_of_a_megabyte_is_refused_with_the_limit() -> None:
    assert len(read_prompt(None, BytesIO(b"a" * MAX_PROMPT_BYTES))) == MAX_PROMPT_BYTES
    with pytest.raises(UsageError, match="over the limit of 1,000,000 bytes"):
        read_prompt(None, BytesIO(b"a" * (1 << 20)))
    with pytest.raises(UsageError, match="the prompt is over the limit"):
        read_prompt("字" * 400_000, None)


def test_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(UsageError, match=r"not UTF-8 \(byte 2 is 0xff\)"):
        read_prompt(None, BytesIO(b"ab\xffcd"))
    with pytest.raises(UsageError, match="not UTF-8"):
        read_prompt("ab\udcff", None)
