from __future__ import annotations

import pytest
import typer

from q35chat.commands.failures import report
from q35chat.errors import BundleError, CapacityError, UsageError
from tests.cli.scripted import recorded


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BundleError("out is damaged"), 1, "q35chat: out is damaged\n"),
        (CapacityError("needs 9 slots"), 1, "q35chat: needs 9 slots\n"),
        (UsageError("bad option"), 2, "q35chat: bad option\n"),
        (typer.BadParameter("x"), 2, "q35chat: Invalid value: x. Try q35chat --help\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (MemoryError(), 1, "q35chat: out of memory"),
        (ZeroDivisionError("oops"), 1, "q35chat: unexpected ZeroDivisionError: oops; --debug"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(error: BaseException, code: int, said: str) -> None:
    seen = recorded()
    assert report(_raised(error), seen.console, debug=False) == code
    assert seen.err.getvalue().startswith(said)
    assert seen.err.getvalue().count("\n") == (1 if said else 0)
    assert seen.out.getvalue() == ""


def test_a_message_cannot_steer_the_terminal_or_take_two_lines() -> None:
    seen = recorded()
    report(BundleError("bad\x1b[31m\nname"), seen.console, debug=False)
    assert seen.err.getvalue() == "q35chat: bad␛[31m␊name\n"


def test_debug_adds_the_traceback() -> None:
    seen = recorded()
    report(_raised(ZeroDivisionError("oops")), seen.console, debug=True)
    assert "Traceback (most recent call last)" in seen.err.getvalue()
    assert "in _raised" in seen.err.getvalue()
