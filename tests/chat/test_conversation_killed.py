from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from q35chat.chat.values import ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.errors import StoreError
from q35chat.store import Store
from tests.chat.streaming_child import ANSWER, REASONING
from tests.doubles.scripted_backend import Reply, ScriptedBackend

ROOT = Path(__file__).parents[2]


class Child:
    """A streaming process and what it has shown."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.session = self._line()
        self.kind = ""
        self.reasoning = ""
        self.answer = ""

    def show_next(self) -> None:
        """Let it show one more event, and stand there."""
        if self.kind:
            self._say()
        self.kind, *token = self._line().split()
        if token and token[0] == "reasoning":
            self.reasoning += chr(int(token[1]))
        elif token:
            self.answer += chr(int(token[1]))

    def _say(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def killed_at_the_end(folder: Path, *arguments: str) -> Iterator[Child]:
    command = [sys.executable, "-m", "tests.chat.streaming_child", str(folder), *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            yield Child(process)
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1500):
        if condition():
            return
        pause.wait(0.02)
    pytest.fail("what was shown was not written")


def last_turn(folder: Path, session: str) -> Turn:
    with Store(folder) as store:
        return store.load(session)[1][-1].turn


@pytest.mark.parametrize("tokens", [1, 5, len(REASONING), len(REASONING) + 7])
def test_what_was_shown_is_written_even_when_the_next_token_never_comes(
    tmp_path: Path, tokens: int
) -> None:
    with killed_at_the_end(tmp_path) as child:
        while len(child.reasoning + child.answer) < tokens:
            child.show_next()
        with Store(tmp_path) as store:

            def written() -> bool:
                turn = store.load(child.session)[1][-1].turn
                return (turn.reasoning, turn.text) == (child.reasoning, child.answer)

            wait_until(written)
    turn = last_turn(tmp_path, child.session)
    assert (turn.reasoning, turn.text) == (child.reasoning, child.answer)
    assert turn.finish is None
    assert len(turn.token_ids) >= tokens


@pytest.mark.parametrize("events", [1, 2, 3, 9, 30])
def test_a_killed_conversation_reopens_and_goes_on(tmp_path: Path, events: int) -> None:
    with killed_at_the_end(tmp_path) as child:
        for _ in range(events):
            child.show_next()
    backend = ScriptedBackend(lambda turns: Reply(ANSWER, REASONING))
    workspace = Workspace(Store(tmp_path), lambda: (backend, ChatSettings(thinking=True)))
    workspace.load()
    chat = workspace.open(child.session)
    assert chat.steps[0].turn.text == "Tell me"
    for step in chat.steps[1:]:
        assert step.note == "interrupted"
        assert child.reasoning.startswith(step.turn.reasoning)
        assert child.answer.startswith(step.turn.text)
    list(chat.continue_answer() if len(chat.steps) == 2 else chat.regenerate())
    turn = chat.steps[-1].turn
    assert (turn.reasoning, turn.text, turn.finish) == (REASONING, ANSWER, "stop")


def test_a_killed_continuation_keeps_what_was_there_before(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as child:
        while not child.answer:
            child.show_next()
        wait_until(lambda: last_turn(tmp_path, child.session).text == child.answer)
    before = last_turn(tmp_path, child.session)
    with killed_at_the_end(tmp_path, child.session) as again:
        while len(again.answer) < 2:
            again.show_next()
        wait_until(lambda: last_turn(tmp_path, child.session).text == before.text + again.answer)
    after = last_turn(tmp_path, child.session)
    assert after.token_ids[: len(before.token_ids)] == before.token_ids
    assert after.reasoning == before.reasoning


def test_a_finished_answer_is_whole_when_its_end_was_shown(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as child:
        while child.kind != "Finished":
            child.show_next()
    turn = last_turn(tmp_path, child.session)
    assert (turn.reasoning, turn.text, turn.finish) == (REASONING, ANSWER, "stop")


def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    with killed_at_the_end(tmp_path) as child:
        child.show_next()
        with (
            Store(tmp_path) as store,
            pytest.raises(StoreError, match="answer is being written"),
        ):
            store.delete(child.session)
    with Store(tmp_path) as store:
        store.delete(child.session)
        assert store.listed() == []
