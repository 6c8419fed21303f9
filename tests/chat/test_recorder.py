from __future__ import annotations

import queue
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.events import Finished, Notice, Token
from q35chat.chat.history.recorder import AnswerRecorder, pause_s
from q35chat.chat.values import ChatSettings, Turn
from q35chat.errors import StoreError
from q35chat.store import Store, TurnRecord
from tests.chat.scripted_chat import open_workspace
from tests.doubles.scripted_backend import ScriptedBackend

BASE = TurnRecord("a", "q", Turn("assistant", ""), 1.0, tokenizer="letters")
WAIT_S = 30.0


def token(text: str) -> Token:
    return Token(ord(text), text, "answer", 1.0, 1.0, 10)


def test_tokens_are_written_in_the_background_and_not_one_by_one() -> None:
    written: queue.Queue[TurnRecord] = queue.Queue()
    with closing(AnswerRecorder(BASE, written.put, interval_s=0.01)) as answer:
        for text in "Hello":
            answer.take(token(text))
        while written.get(timeout=WAIT_S).turn.text != "Hello":
            pass
        answer.take(token("!"))
        assert written.get(timeout=WAIT_S).turn.token_ids == tuple(map(ord, "Hello!"))
    assert written.empty()


def test_nothing_new_is_not_written_again() -> None:
    written: queue.Queue[TurnRecord] = queue.Queue()
    with closing(AnswerRecorder(BASE, written.put, interval_s=0.001)) as answer:
        answer.take(token("x"))
        written.get(timeout=WAIT_S)
        answer.take(token("y"))
        written.get(timeout=WAIT_S)
    assert written.empty()


def test_a_token_that_comes_while_the_answer_is_put_together_is_written_whole_and_once() -> None:
    said = "a" * 30
    coming = [
        threading.Thread(target=lambda text=text: answer.take(token(text))) for text in said[1:]
    ]
    late = iter(coming)

    class Begun(str):
        """What the answer is added to; while it is, the next token comes in another thread."""

        def __add__(self, more: str, /) -> str:
            if thread := next(late, None):
                thread.start()
            return str(self) + more

    written: queue.Queue[TurnRecord] = queue.Queue()

    def write(record: TurnRecord) -> None:  # while it does, that token is taken
        coming[min(len(record.turn.text), len(coming)) - 1].join()
        written.put(record)

    base = replace(BASE, turn=Turn("assistant", Begun()))
    with closing(AnswerRecorder(base, write, interval_s=0.0)) as answer:
        answer.take(token(said[0]))
        for count in range(1, len(said) + 1):
            turn = written.get(timeout=WAIT_S).turn
            assert (turn.text, len(turn.token_ids)) == (said[:count], count)
    assert written.empty()


@given(st.integers(0, 1_000_000), st.integers(0, 1_000))
def test_an_answer_is_written_within_half_a_second_and_no_oftener_when_it_is_longer(
    tokens: int, more: int
) -> None:
    assert 0.1 == pause_s(0) <= pause_s(tokens) <= pause_s(tokens + more) <= 0.5
    assert pause_s(2_000) == 0.1


def test_notices_stand_apart_in_the_note() -> None:
    with closing(AnswerRecorder(replace(BASE, note="first"), lambda _: None)) as answer:
        for text in ("second", "third"):
            answer.take(Notice(text))
    assert answer.record().note == "first · second · third"


def test_a_slow_disk_does_not_hold_up_tokens() -> None:
    writing, go_on = threading.Event(), threading.Event()

    def write(_record: TurnRecord) -> None:
        writing.set()
        assert go_on.wait(WAIT_S)

    with closing(AnswerRecorder(BASE, write, interval_s=0.001)) as answer:
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

    with closing(AnswerRecorder(BASE, write, interval_s=0.001)) as answer:
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
    chat = open_workspace(tmp_path, ScriptedBackend(), ChatSettings()).new()
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
    with Store(tmp_path / "data") as store:
        _, turns = store.load(chat.id)
    texts = [turn.turn.text for turn in turns]
    assert texts == ["one", finished.text, "two", "Answer 2 to: two"]
    assert turns[1].turn == replace(before[1].turn)
