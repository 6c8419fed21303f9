from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.events import Finished, Notice, Token
from q35chat.chat.history.recorder import AnswerRecorder
from q35chat.chat.values import ChatSettings, Turn
from q35chat.chat.workspace import StoredWorkspace
from q35chat.errors import StoreError
from q35chat.store import Store, TurnRecord
from tests.doubles.scripted_backend import ScriptedBackend

BASE = TurnRecord("a", "q", Turn("assistant", ""), 1.0, tokenizer="letters")
WAIT_S = 30.0


def token(text: str) -> Token:
    return Token(ord(text), text, "answer", 1.0, 1.0, 10)


def test_tokens_are_written_in_the_background_and_not_one_by_one() -> None:
    written: queue.Queue[TurnRecord] = queue.Queue()
    with AnswerRecorder(BASE, written.put, interval_s=0.01) as answer:
        for text in "Hello":
            answer.take(token(text))
        while written.get(timeout=WAIT_S).turn.text != "Hello":
            pass
        answer.take(token("!"))
        assert written.get(timeout=WAIT_S).turn.token_ids == tuple(map(ord, "Hello!"))
    assert written.empty()


def test_nothing_new_is_not_written_again() -> None:
    written: queue.Queue[TurnRecord] = queue.Queue()
    with AnswerRecorder(BASE, written.put, interval_s=0.001) as answer:
        answer.take(token("x"))
        written.get(timeout=WAIT_S)
        answer.take(token("y"))
        written.get(timeout=WAIT_S)
    assert written.empty()


class Stepped(threading.Event):
    """The end of an answer, for which the writer waits as often as it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: queue.Queue[bool] = queue.Queue()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return self.waits.get(timeout=WAIT_S)

    def set(self) -> None:
        super().set()
        self.waits.put(True)


class Overtaken:
    """A lock before which, the first time that another thread comes to it, `first` is done."""

    def __init__(self, first: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._maker, self._first = threading.get_ident(), [first]

    def __enter__(self) -> None:
        if threading.get_ident() != self._maker and self._first:
            self._first.pop()()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_token_that_comes_while_the_answer_is_put_together_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: queue.Queue[str] = queue.Queue()
    answer, steps = AnswerRecorder(BASE, lambda record: written.put(record.turn.text)), Stepped()
    monkeypatch.setattr(answer, "_lock", Overtaken(lambda: answer.take(token("y"))))
    monkeypatch.setattr(answer, "_ended", steps)
    with answer:
        answer.take(token("x"))
        for _ in range(3):
            steps.waits.put(False)
    assert written.get_nowait() == "xy"
    assert written.empty()


@pytest.mark.parametrize(("before", "pause_s"), [(0, 0.1), (2_000, 0.1), (6_000, 0.3)])
def test_a_token_is_written_a_tenth_of_a_second_later_and_long_answers_less_often(
    monkeypatch: pytest.MonkeyPatch, before: int, pause_s: float
) -> None:
    base = replace(BASE, turn=replace(BASE.turn, token_ids=(1,) * before))
    answer, steps = AnswerRecorder(base, lambda _: None), Stepped()
    monkeypatch.setattr(answer, "_ended", steps)
    with answer:
        answer.take(token("x"))
    assert steps.pauses == [pytest.approx(pause_s, abs=0.001)]


def test_no_answer_is_so_long_that_it_is_written_less_often_than_twice_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = replace(BASE, turn=replace(BASE.turn, token_ids=(1,) * 200_000))
    answer, steps = AnswerRecorder(base, lambda _: None), Stepped()
    monkeypatch.setattr(answer, "_ended", steps)
    with answer:
        answer.take(token("x"))
    assert steps.pauses == [0.5]


def test_notices_stand_apart_in_the_note() -> None:
    with AnswerRecorder(replace(BASE, note="first"), lambda _: None) as answer:
        for text in ("second", "third"):
            answer.take(Notice(text))
    assert answer.record().note == "first · second · third"


def test_a_slow_disk_does_not_hold_up_tokens() -> None:
    writing, go_on = threading.Event(), threading.Event()

    def write(_record: TurnRecord) -> None:
        writing.set()
        assert go_on.wait(WAIT_S)

    with AnswerRecorder(BASE, write, interval_s=0.001) as answer:
        answer.take(token("a"))
        assert writing.wait(WAIT_S)
        for text in "bcdef":
            answer.take(token(text))
        assert answer.record().turn.text == "abcdef"
        go_on.set()


def test_trouble_is_said_once_and_writing_goes_on() -> None:
    tried: queue.Queue[str] = queue.Queue()
    broken = True

    def write(record: TurnRecord) -> None:
        tried.put(record.turn.text)
        if broken:
            raise StoreError("disk full")

    with AnswerRecorder(BASE, write, interval_s=0.001) as answer:
        answer.take(token("a"))
        for _ in range(3):
            assert tried.get(timeout=WAIT_S) == "a"
        assert answer.problem() == "disk full"
        assert answer.problem() == ""
        broken = False
        while tried.get(timeout=WAIT_S) != "a":
            pass


def test_an_answer_that_cannot_be_written_is_said_kept_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = StoredWorkspace(Store(tmp_path), lambda: (ScriptedBackend(), ChatSettings()))
    workspace.load()
    chat = workspace.new()
    save = Store.save

    def full(self: Store, record: object, turns: object, *, since: object, wait: bool) -> int:
        raise StoreError("disk full")

    events = chat.send("one")
    first = next(events)
    monkeypatch.setattr(Store, "save", full)
    *_, notice, finished = [first, *events]
    assert isinstance(finished, Finished)
    assert notice == Notice("This answer is not saved yet: disk full")
    assert chat.steps[1].turn.text == finished.text
    before = chat.steps
    with pytest.raises(StoreError, match="disk full"):
        list(chat.send("not kept"))
    assert chat.steps == before
    monkeypatch.setattr(Store, "save", save)
    list(chat.send("two"))
    with Store(tmp_path) as store:
        _, turns = store.load(chat.id)
    texts = [turn.turn.text for turn in turns]
    assert texts == ["one", finished.text, "two", "Answer 2 to: two"]
    assert turns[1].turn == replace(before[1].turn)
