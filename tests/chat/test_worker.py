from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from q35chat.chat.turn.lock import StoppableTurn, TurnLock
from q35chat.chat.worker import Worker
from tests.support.imports import ROOT

WAIT_S = 30.0


class Waiting:
    """Work that goes on until it is stopped."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, stop: threading.Event) -> None:
        self.begun.set()
        assert stop.wait(WAIT_S)
        self.ended.set()


def printed_by(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_only_the_newest_of_what_waits_is_done() -> None:
    worker, done = Worker(), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def hold(_: threading.Event) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        done.append("first")

    worker.soon(hold)
    assert begun.wait(WAIT_S)
    worker.soon(lambda _: done.append("second"))
    worker.soon(lambda _: done.append("third"))
    go_on.set()
    worker.wait()

    assert done == ["first", "third"]


def test_a_thread_that_does_not_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker, done = Worker(), threading.Event()
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            worker.soon(lambda _: None)
    worker.stop()
    worker.soon(lambda _: done.set())
    assert done.wait(WAIT_S)


def test_work_that_fails_is_logged_and_the_next_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker, done = Worker(), threading.Event()

    def fail(_: threading.Event) -> None:
        raise RuntimeError("no")

    worker.soon(fail)
    worker.wait()
    worker.soon(lambda _: done.set())
    worker.wait()

    assert done.is_set()
    assert "no" in caplog.text


def test_stopping_waits_until_the_work_has_ended_and_later_work_is_not_stopped() -> None:
    worker, first, second = Worker(), Waiting(), Waiting()
    worker.soon(first)
    assert first.begun.wait(WAIT_S)
    worker.stop()
    assert first.ended.is_set()

    worker.soon(second)
    assert second.begun.wait(WAIT_S)
    assert not second.ended.is_set()
    worker.stop()


def test_no_thread_is_left_when_nothing_is_left_to_be_done() -> None:
    threads: list[threading.Thread] = []
    worker = Worker()
    worker.soon(lambda _: threads.append(threading.current_thread()))
    worker.wait()

    assert not threads[0].is_alive()


def test_what_is_to_be_done_is_done_before_the_interpreter_ends() -> None:
    program = """
import atexit, sys, threading
ending, ended = threading.Event(), threading.Event()
atexit.register(ended.set)  # last of all
from q35chat.chat.worker import Worker
atexit.register(ending.set)  # first of all
sys.setswitchinterval(60)  # whoever does not wait goes on to the end
def work(stop):
    begun.set()
    ending.wait()
    print("too late" if ended.is_set() else "done", flush=True)
begun = threading.Event()
worker = Worker()
worker.soon(work)
begun.wait()
worker.soon(lambda stop: print("and the next", flush=True))
"""
    assert printed_by(program) == "done\nand the next\n"


def test_work_without_an_end_ends_before_the_interpreter_does() -> None:
    program = """
import threading
from q35chat.chat.worker import Worker
begun = threading.Event()
def work(stop):
    begun.set()
    stop.wait()
    print("ended", flush=True)
Worker().soon(work)
begun.wait()
"""
    assert printed_by(program) == "ended\n"


def test_a_turn_ends_idle_work_before_it_computes() -> None:
    lock, work = TurnLock(), Waiting()
    lock.when_idle(work)
    assert work.begun.wait(WAIT_S)

    with lock.passing(StoppableTurn()):
        assert work.ended.is_set()


def test_new_idle_work_ends_that_before() -> None:
    lock, first, second = TurnLock(), Waiting(), Waiting()
    lock.when_idle(first)
    lock.when_idle(second)

    assert second.begun.wait(WAIT_S)
    assert not second.ended.is_set()
    assert first.ended.is_set()
    lock.stop_idle()
    assert second.ended.is_set()


def test_no_idle_work_begins_during_a_turn() -> None:
    lock, work = TurnLock(), Waiting()
    with lock.passing(StoppableTurn()):
        lock.when_idle(work)
        lock.wait_idle()

    assert not work.begun.is_set()
