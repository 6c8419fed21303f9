"""Signals, pipes and exit codes, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from q35chat.commands.console import forget_impossible_size
from tests.cli.processes import PATHS, PATIENCE_S, SCRIPTED, running

ASK = ("ask", "Hello", "--model-dir", "scripted")
GENUINE = (sys.executable, "-m", "q35chat")
LIST = ("sessions", "list", "--json")


def start(script: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running([*SCRIPTED, script, *arguments])


def shell(
    command: str, *arguments: str, program: Sequence[str] = SCRIPTED
) -> subprocess.CompletedProcess[bytes]:
    """Run a shell's line in which `"$@"` is q35chat with the arguments."""
    return subprocess.run(
        ["sh", "-c", command, "sh", *program, *arguments],
        env=os.environ | {"PYTHONPATH": PATHS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_ctrl_c_keeps_what_was_printed_and_exits_130() -> None:
    with start("waiting", *ASK) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"go "
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"end\n", b"stopped\n")
        assert process.returncode == 130


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_keeps_what_was_printed_and_exits_with_its_number(
    ending: signal.Signals, tmp_path: Path
) -> None:
    folders = {"XDG_DATA_HOME": str(tmp_path)}
    with running([*SCRIPTED, "waiting", *ASK], environment=folders) as process:
        assert process.stdout is not None
        printed = process.stdout.read(3)
        process.send_signal(ending)
        printed += process.stdout.read()
        assert process.wait() == 128 + ending
    shown = subprocess.run(
        [*SCRIPTED, "brief", "sessions", "export", "--format", "json"],
        env=os.environ | {"PYTHONPATH": PATHS} | folders,
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    answer = json.loads(shown.stdout)["turns"][-1]
    assert (printed, answer["text"]) == (b"go end\n", "go end")
    assert answer["finish_reason"] == "cancelled"


def test_a_second_ctrl_c_kills() -> None:
    with start("stubborn", *ASK) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == b"go "
        process.send_signal(signal.SIGINT)
        assert process.stdout.read(3) == b"no "
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == -signal.SIGINT


def test_ctrl_c_while_the_model_loads_exits_130_at_once() -> None:
    with start("loading", *ASK) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"loading\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"")
        assert process.returncode == 130


def test_a_reader_that_goes_away_ends_the_answer_quietly() -> None:
    with start("endless", *ASK) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"word "
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.parametrize("arguments", [LIST, ("--version",), ("--help",)])
def test_a_reader_that_left_before_the_output_was_written_is_141_too(
    arguments: tuple[str, ...],
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            [*SCRIPTED, "waiting", *arguments],
            env=os.environ | {"PYTHONPATH": PATHS},
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


SIZES = ("COLUMNS", "LINES", "TERMINAL_WIDTH")


@pytest.mark.parametrize("size", ["9" * 20, "0", "-5", "x", "٣", "99999", "120"])
def test_a_size_that_no_terminal_has_is_forgotten(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SIZES:
        monkeypatch.setenv(name, size)
    forget_impossible_size()
    assert {os.environ.get(name) for name in SIZES} == {"120" if size == "120" else None}


def test_a_size_that_no_terminal_has_is_not_believed() -> None:
    sizes = dict.fromkeys(SIZES, "9" * 20)
    with running([*SCRIPTED, "brief", "--help"], environment=sizes) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"Chat with Qwen3.5 on this machine" in out
    assert max(map(len, out.decode().splitlines())) < 500


UNWRITABLE = "< /dev/null"
"""What a full disk does to a stream happens on every system to one that is open for reading."""


@pytest.mark.parametrize("arguments", [LIST, ("--version",), ASK, (*ASK, "--json")])
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(
    arguments: tuple[str, ...],
) -> None:
    result = shell(f'"$@" 1{UNWRITABLE}', "brief", *arguments)
    said = b"q35chat: cannot write the output: Bad file descriptor; make room, or send it to an"
    assert result.returncode == 1
    assert result.stderr.startswith(said)
    assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize(("arguments", "code"), [(("--colour",), 2), (ASK, 1)])
def test_a_failure_that_cannot_be_told_keeps_its_exit_code(
    arguments: tuple[str, ...], code: int
) -> None:
    result = shell(f'"$@" 1{UNWRITABLE} 2{UNWRITABLE}', "brief", *arguments)
    assert result.returncode == code


def test_a_closed_stdout_is_no_crash() -> None:
    result = shell('"$@" >&-', "waiting", "ask", "")
    assert result.returncode == 2
    assert result.stderr == b"q35chat: the prompt is empty; say something, or pipe text into it\n"


@pytest.mark.parametrize("arguments", [ASK, ("sessions", "list", "--json"), ("man",)])
def test_what_a_closed_stdout_cannot_show_is_a_failure(arguments: tuple[str, ...]) -> None:
    result = shell('"$@" >&-', "brief", *arguments)
    assert result.returncode == 1
    assert b"q35chat: cannot write the output: Bad file descriptor" in result.stderr


def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    program = """
import os
from q35chat import cli
cli.run = lambda _: print(os.open(os.devnull, os.O_RDONLY))
cli.main()
"""
    result = shell('"$@" <&- 2>&-', program=(sys.executable, "-c", program))
    assert int(result.stdout) > 2


def test_a_plain_chat_without_stdin_says_so() -> None:
    result = shell('"$@" <&-', "brief", "--plain", "--model-dir", "scripted")
    assert result.returncode == 2
    assert result.stderr.startswith(b"q35chat: --plain reads questions from stdin, which is closed")
    assert result.stderr.count(b"\n") == 1


def test_a_plain_chat_without_stdin_answers_its_prompt() -> None:
    chat = ("--plain", "--model-dir", "scripted", "--prompt", "Hello")
    result = shell('"$@" <&-', "brief", *chat)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"Hi\n", b"")


def test_a_script_that_is_not_utf_8_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    script = tmp_path / "latin1.txt"
    script.write_bytes("Hello\r\ncafé\n".encode("latin-1"))
    result = shell(f'"$@" < {script}', "brief", "--plain", "--model-dir", "scripted")
    assert (result.returncode, result.stdout) == (2, b"Hi\n")
    said = b"q35chat: line 2 on stdin is not UTF-8 (byte 3 is 0xe9); convert it\n"
    assert result.stderr == said


def test_the_chat_in_a_pipe_explains_ask_and_exits_2() -> None:
    with start("waiting") as process:
        out, err = process.communicate()
        assert (out, process.returncode) == (b"", 2)
    assert b"the chat needs a terminal" in err
    assert b'q35chat ask "..."' in err


@pytest.mark.parametrize("command", ["ask hello", "", "chat --plain", "serve --port 0"])
@pytest.mark.parametrize("mib", range(40, 401, 90))
def test_too_little_memory_for_the_libraries_is_one_line_that_names_it(
    command: str, mib: int
) -> None:
    line = f'ulimit -v {mib << 10}; exec "$@"'
    done = shell(line, *command.split(), program=GENUINE)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout, len(said.splitlines())) == (1, b"", 1), said
    assert f"may take {mib}.0 MiB of memory here (ulimit -v)" in said


def test_what_needs_no_library_of_a_model_works_with_little_memory(tmp_path: Path) -> None:
    line = f'ulimit -v {60 << 10}; export XDG_DATA_HOME={tmp_path}; exec "$@"'
    for command in ("sessions list", "cache", "ask --help"):
        done = shell(line, *command.split(), program=GENUINE)
        assert done.returncode == 0, done.stderr


def test_chinese_does_not_crash_a_terminal_without_unicode(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "q35chat", "ask", "--image", "照片.png", "x"],
        env=os.environ | {"PYTHONPATH": PATHS, "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 1
    assert b"does not exist" in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_late_ctrl_c_ends_what_tidies_up_without_a_word() -> None:
    late = "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    lines = ("import atexit, os, signal, sys", late, "from q35chat.cli import main", "main()")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), "--version"],
        env=os.environ | {"PYTHONPATH": PATHS},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
    assert done.stdout.startswith(b"q35chat ")
