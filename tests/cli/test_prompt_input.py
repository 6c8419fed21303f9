from __future__ import annotations

from io import BytesIO

import pytest

from q35chat.commands.prompt_input import MAX_PROMPT_BYTES, read_prompt
from q35chat.errors import UsageError


class TerminalInput(BytesIO):
    def isatty(self) -> bool:
        return True


def test_the_argument_wins_and_stdin_is_left_alone() -> None:
    stdin = BytesIO(b"piped")
    assert read_prompt("typed", stdin) == "typed"
    assert stdin.read() == b"piped"


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
