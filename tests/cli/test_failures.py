from __future__ import annotations

import errno
import resource
import threading
from pathlib import Path

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
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "q35chat: cannot write the output: No space left on device; make room, or send it",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/a b/c"),
            1,
            "q35chat: cannot use /a b/c: Permission denied; --debug shows where\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", b"/d\xff"),
            1,
            "q35chat: cannot use /d<DCFF>: No space left on device; --debug shows where\n",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file", Path("p")),
            1,
            "q35chat: cannot use p: No such file; --debug shows where\n",
        ),
        (ConnectionError("refused"), 1, "q35chat: unexpected ConnectionError: refused; --debug"),
        (OSError(errno.EMFILE, "Too many open files", 3), 1, "q35chat: unexpected OSError: [Errno"),
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


def test_a_stderr_that_cannot_be_written_hides_the_line_and_not_the_exit_code() -> None:
    seen = recorded()

    def full(_: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    seen.err.write = full  # type: ignore[method-assign]
    assert report(_raised(UsageError("bad option")), seen.console, debug=True) == 2


def test_a_traceback_steers_no_terminal() -> None:
    seen = recorded()
    report(_raised(ZeroDivisionError("a\x1b[2J\nb")), seen.console, debug=True)
    assert "\x1b" not in seen.err.getvalue()
    assert "ZeroDivisionError: a␛[2J\nb\nq35chat: unexpected" in seen.err.getvalue()


@pytest.mark.parametrize("error", [MemoryError(), BundleError("odd"), RuntimeError("no thread")])
def test_where_the_shell_gives_little_memory_a_failure_names_that(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for most, named in ((200 << 20, True), (8 << 30, False), (resource.RLIM_INFINITY, False)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=most: (most, most))
        seen = recorded()
        assert report(error, seen.console, debug=False) == 1
        said = seen.err.getvalue()
        assert ("200.0 MiB of memory here (ulimit -v)" in said) is named
        assert len(said.splitlines()) == 1


def interrupt_within(lock: threading.Lock) -> None:
    with lock:
        lock.release()  # as a wait on a condition has done when the interrupt comes
        raise KeyboardInterrupt


def test_an_interrupt_between_two_steps_of_a_lock_is_an_interrupt() -> None:
    seen = recorded()
    with pytest.raises(RuntimeError) as failed:
        interrupt_within(threading.Lock())

    assert report(failed.value, seen.console, debug=False) == 130
    assert seen.err.getvalue() == ""
