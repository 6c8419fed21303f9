from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from q35chat.ascend.native_log import NativeLog, native_log
from tests.doubles.mindspore_lite.native_log import error, warning

BEGIN = """
import logging, os, sys
from pathlib import Path
from q35chat.ascend.native_log import native_log
log = native_log(Path(sys.argv[1]))
print(log.path, flush=True)
"""
CHILD = f"""{BEGIN}
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
    line = [sys.executable, "-c", CHILD, str(tmp_path / "native.log")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)

    assert done.stderr == "python\nscreen\n"
    path = Path(done.stdout.strip())
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


def test_a_long_log_begins_anew_and_still_tells_the_cause(log: NativeLog) -> None:
    log.install()
    os.write(2, b"x" * (9 << 20) + b"\n")
    before, mark = log.path.stat().st_size, log.mark()
    error("deep.cc:7] Load]", "dlopen failed")

    assert (mark, log.cause(mark), log.cause(before)) == (0, "dlopen failed", "dlopen failed")
    assert log.path.stat().st_size < 1 << 10


def test_what_a_former_process_of_the_same_number_wrote_is_gone(log: NativeLog) -> None:
    log.path.parent.mkdir()
    log.path.write_text("[ERROR] of another time", encoding="utf-8")
    log.install()

    assert (log.mark(), log.path.read_bytes()) == (0, b"")


@contextmanager
def another(family: Path, path: Path | None = None) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """Another process with a log of the `family`, at `path` where it is given; the path of the log,
    and what has a line written to it."""
    claim = f"os.getpid = lambda: {path.stem.rpartition('-')[2]}\n" if path else ""
    code = f"import os\n{claim}{BEGIN}\nfor line in sys.stdin:\n"
    code += "    os.write(2, line.encode())\n    print(flush=True)\n"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(family)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answered = process.stdin, process.stdout

        def write(line: str) -> None:
            print(line, file=asked, flush=True)
            answered.readline()

        yield Path(answered.readline().strip()), write
        asked.close()


def test_the_errors_of_another_process_are_not_the_cause_in_this_one(log: NativeLog) -> None:
    family = log.path.with_name("native.log")
    with another(family) as (path, write):
        log.install()
        mark = log.mark()
        os.write(2, b"ours\n")
        write("[ERROR] LITE(1,7f,python):now [deep.cc:7] Load] dlopen failed")

        assert (log.cause(mark), log.since(mark)) == (None, "ours\n")
        assert path != log.path
        assert "dlopen failed" in path.read_text(encoding="utf-8")


def test_a_process_that_begins_takes_nothing_from_one_that_runs(log: NativeLog) -> None:
    log.install()
    mark = log.mark()
    error("deep.cc:7] Load]", "dlopen failed")
    with another(log.path.with_name("native.log")):
        assert log.cause(mark) == "dlopen failed"
        assert log.path.is_file()


def test_a_process_of_the_same_number_in_another_container_has_another_file(
    log: NativeLog,
) -> None:
    with another(log.path.with_name("native.log"), log.path) as (path, write):
        assert path == log.path
        log.install()
        write("theirs")
        os.write(2, b"ours\n")

        assert log.path.name == path.name.replace(".log", "-2.log")
        assert path.read_text(encoding="utf-8") == "theirs\n"
        assert log.path.read_text(encoding="utf-8") == "ours\n"


def test_a_folder_whose_file_system_has_no_locks_does(
    log: NativeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr("fcntl.flock", without)
    wanted = log.path
    log.install()
    os.write(2, b"ours\n")

    assert (log.path, wanted.read_bytes()) == (wanted, b"ours\n")


def test_of_the_logs_of_processes_that_are_gone_only_the_latest_stay(log: NativeLog) -> None:
    folder = log.path.parent
    folder.mkdir()
    for age, name in enumerate(["native.log", "native-9999991.log", "native-9999992.log",
                                "native-9999993.log", "native-9999994.log"]):  # fmt: skip
        (folder / name).write_text(name, encoding="utf-8")
        os.utime(folder / name, (age, age))
    (folder / "other.log").touch()
    with another(folder / "native.log") as (path, _):
        os.utime(path, (0, 0))
        log.install()

        assert {file.name for file in folder.iterdir()} == {
            "other.log", path.name, log.path.name,
            "native-9999992.log", "native-9999993.log", "native-9999994.log",
        }  # fmt: skip


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
