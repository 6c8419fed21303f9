from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from q35chat.runtimes.native_log import NativeLog, native_log
from tests.doubles.mindspore_lite.native_log import error, warning

CHILD = """
import logging, os, sys
from pathlib import Path
from q35chat.runtimes.native_log import native_log
log = native_log(Path(sys.argv[1]))
os.write(2, b"native\\n")
print("python", file=sys.stderr)
print("screen", file=sys.__stderr__)
logging.warning("from the library")
sys.stderr.flush()
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[NativeLog]:
    """To be installed by the test itself: pytest's capture takes descriptor 2 between phases."""
    log = NativeLog(tmp_path / "logs" / "native.log")
    yield log
    log.remove()


def test_native_lines_go_to_the_file_and_not_to_descriptor_2(
    log: NativeLog, capfd: pytest.CaptureFixture[str]
) -> None:
    log.install()
    os.write(2, b"something native\n")

    assert log.path.read_text(encoding="utf-8") == "something native\n"
    assert log.path.stat().st_mode & 0o077 == 0
    log.remove()
    os.write(2, b"back on the screen\n")
    assert capfd.readouterr().err == "back on the screen\n"


def test_pythons_own_stderr_stays_on_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "native.log"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
    )

    assert done.stderr == "python\nscreen\n"
    assert path.read_text(encoding="utf-8") == "native\nfrom the library\n"


def test_the_first_error_after_a_mark_is_the_cause(log: NativeLog) -> None:
    log.install()
    error("old.cc:1] Old]", "before the mark")
    mark = log.mark()
    assert log.cause(mark) is None
    warning("numa.cc:35] Numa]", "only a warning")
    assert log.cause(mark) is None
    error("deep.cc:7] Load]", "dlopen  failed: libgraph.so")
    error("cxx_api.cc:90] Build]", "Init session failed.")

    assert log.cause(mark) == "dlopen failed: libgraph.so"
    assert "before the mark" not in log.since(mark)


def test_a_long_log_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "native.log"
    path.write_bytes(b"x" * (9 << 20))
    log = NativeLog(path)
    log.install()
    size = log.mark()
    log.remove()

    assert size == 0


def test_installing_twice_changes_nothing(log: NativeLog) -> None:
    log.install()
    log.install()
    os.write(2, b"once\n")

    assert log.path.read_text(encoding="utf-8") == "once\n"


def test_a_process_has_one_log(tmp_path: Path) -> None:
    first = native_log(tmp_path / "a.log")
    try:
        assert native_log(tmp_path / "b.log") is first
    finally:
        first.remove()
    second = native_log(tmp_path / "b.log")
    second.remove()
    assert second is not first


def test_warnings_of_the_root_logger_are_caught_only_while_nobody_else_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = list(logging.getLogger().handlers)
    log = NativeLog(tmp_path / "native.log")
    log.install()
    log.remove()

    assert logging.getLogger().handlers == before
