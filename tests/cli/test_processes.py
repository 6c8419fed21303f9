"""Signals, pipes and exit codes, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.imports import ROOT

ASK = ("ask", "Hello", "--model-dir", "scripted")


PATHS = os.pathsep.join([str(ROOT), str(ROOT / "export")])


def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.scripted_main", script, *arguments],
        env=os.environ | {"PYTHONPATH": PATHS},
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_ctrl_c_keeps_what_was_printed_and_exits_130() -> None:
    process = start("waiting", *ASK)
    assert process.stdout is not None
    assert process.stdout.read(3) == b"go "
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (out, err) == (b"end\n", b"stopped\n")
    assert process.returncode == 130


def test_a_second_ctrl_c_kills() -> None:
    process = start("stubborn", *ASK)
    assert process.stdout is not None
    assert process.stdout.read(3) == b"go "
    process.send_signal(signal.SIGINT)
    assert process.stdout.read(3) == b"no "
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == -signal.SIGINT


def test_ctrl_c_while_the_model_loads_exits_130_at_once() -> None:
    process = start("loading", *ASK)
    assert process.stderr is not None
    assert process.stderr.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (out, err, process.returncode) == (b"", b"", 130)


def test_a_reader_that_goes_away_ends_the_answer_quietly() -> None:
    process = start("endless", *ASK)
    assert process.stdout is not None
    assert process.stdout.read(5) == b"word "
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_a_closed_stdout_is_no_crash() -> None:
    command = f"{sys.executable} -m tests.cli.scripted_main waiting ask '' >&-"
    result = subprocess.run(
        ["sh", "-c", command],
        env=os.environ | {"PYTHONPATH": PATHS},
        capture_output=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == b"q35chat: the prompt is empty; say something, or pipe text into it\n"


def test_the_chat_in_a_pipe_explains_ask_and_exits_2() -> None:
    process = start("waiting")
    out, err = process.communicate()
    assert (out, process.returncode) == (b"", 2)
    assert b"the chat needs a terminal" in err
    assert b'q35chat ask "..."' in err


def test_chinese_does_not_crash_a_terminal_without_unicode(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "q35chat", "ask", "--image", "照片.png", "x"],
        env=os.environ | {"PYTHONPATH": PATHS, "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 1
    assert b"does not exist" in result.stderr
    assert b"Traceback" not in result.stderr
