"""Threads of the screen's workers, when the screen has gone."""

from __future__ import annotations

import threading

import pytest

from q35chat.tui.workers import WorkerThreads
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import opened


def test_what_ends_in_time_is_waited_for() -> None:
    pool, begun, ended = WorkerThreads(30), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        threading.Event().wait(0.05)
        ended.set()

    pool.submit(work)
    assert begun.wait(30)
    pool.shutdown()
    assert ended.is_set()


def test_what_does_not_end_holds_nobody_up_and_what_waits_never_begins() -> None:
    pool, go_on, began = WorkerThreads(0.01), threading.Event(), threading.Event()
    stuck = [pool.submit(go_on.wait) for _ in range(64)]
    later = pool.submit(began.set)
    pool.shutdown()
    assert later.cancelled()
    assert not began.is_set()
    go_on.set()
    assert stuck[0].result(30)


async def test_a_stop_before_the_answer_is_computed_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(ScriptedWorkspace([Reply(gate=Gate())])) as chat:
        transcript = chat.screen.transcript
        begin = transcript.begin

        async def begin_and_stop(*question: object) -> object:
            view = await begin(*question)  # type: ignore[arg-type]
            chat.screen.turns.stop()
            return view

        monkeypatch.setattr(transcript, "begin", begin_and_stop)
        await chat.ask("one")
        assert chat.conversation.steps[-1].turn.finish == "cancelled"
