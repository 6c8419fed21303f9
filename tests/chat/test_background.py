from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from q35chat.chat.background import Background
from tests.support.imports import ROOT

WAIT_S = 30.0


def test_only_the_newest_of_what_waits_is_done() -> None:
    background, done = Background(), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        done.append("first")

    background.soon(hold)
    assert begun.wait(WAIT_S)
    background.soon(lambda: done.append("second"))
    background.soon(lambda: done.append("third"))
    go_on.set()
    background.wait()

    assert done == ["first", "third"]


def test_work_that_fails_is_logged_and_the_next_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, done = Background(), threading.Event()

    def fail() -> None:
        raise RuntimeError("no")

    background.soon(fail)
    background.wait()
    background.soon(done.set)
    background.wait()

    assert done.is_set()
    assert "no" in caplog.text


def test_what_is_to_be_done_is_done_before_the_interpreter_ends() -> None:
    program = """
import atexit, sys, threading
ending, ended = threading.Event(), threading.Event()
atexit.register(ended.set)  # last of all
from q35chat.chat.background import Background
atexit.register(ending.set)  # first of all
sys.setswitchinterval(60)  # whoever does not wait goes on to the end
def work():
    begun.set()
    ending.wait()
    print("too late" if ended.is_set() else "done", flush=True)
begun = threading.Event()
Background().soon(work)
begun.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "done\n"
