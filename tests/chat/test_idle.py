from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

from q35chat.chat.gate import Gate, Run
from q35chat.chat.idle import IdleWork
from tests.support.imports import ROOT


class Waiting:
    """Work that goes on until it is stopped."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, should_stop: Callable[[], bool]) -> None:
        self.begun.set()
        pause = threading.Event()
        while not should_stop():
            pause.wait(0.001)
        self.ended.set()


def test_stopping_waits_until_the_work_has_ended() -> None:
    idle, work = IdleWork(), Waiting()
    idle.start(work)
    assert work.begun.wait(30)
    idle.stop()

    assert work.ended.is_set()


def test_work_ends_before_the_interpreter_does() -> None:
    program = """
import threading
from q35chat.chat.idle import IdleWork
begun, pause = threading.Event(), threading.Event()
def work(should_stop):
    begun.set()
    while not should_stop():
        pause.wait(0.001)
    print("ended", flush=True)
idle = IdleWork()
idle.start(work)
begun.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "ended\n"


def test_new_work_ends_the_work_before() -> None:
    idle, first, second = IdleWork(), Waiting(), Waiting()
    idle.start(first)
    idle.start(second)

    assert first.ended.is_set()
    assert not second.ended.is_set()
    idle.stop()


def test_work_that_fails_troubles_nobody() -> None:
    idle, done = IdleWork(), threading.Event()

    def fail(_: Callable[[], bool]) -> None:
        done.set()
        raise RuntimeError("no")

    idle.start(fail)
    idle.wait()

    assert done.is_set()
    idle.stop()


def test_a_run_ends_idle_work_before_it_computes() -> None:
    gate, work = Gate(), Waiting()
    gate.when_idle(work)
    assert work.begun.wait(30)

    with gate.passing(Run()):
        assert work.ended.is_set()


def test_idle_work_can_be_ended_before_leaving() -> None:
    gate, work = Gate(), Waiting()
    gate.when_idle(work)
    assert work.begun.wait(30)
    gate.stop_idle()

    assert work.ended.is_set()


def test_no_work_begins_during_a_run() -> None:
    gate, work = Gate(), Waiting()
    with gate.passing(Run()):
        gate.when_idle(work)
        gate.wait_idle()

    assert not work.begun.is_set()
