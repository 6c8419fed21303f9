"""Conversations with the demo model whose answers show what it remembers and saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Event, Finished, Token, VisionProgress
from q35chat.chat.workspace import Workspace
from q35chat.runtimes import cpu
from q35chat.store import Store
from q35export.request import Precision
from tools.demo_model.evaluate import GREEDY, Asked

PICTURES = Path(__file__).parents[2] / "assets" / "pictures"


class Desk:
    """The demo model at work over a store; `restart` is a new process in all but name."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        self._bundle = bundle
        self._folder = folder
        self.chat = self._workspace().new()

    def restart(self) -> None:
        """Load the model and the store again and reopen the conversation."""
        self.chat = self._workspace().open(self.chat.id)

    def _workspace(self) -> Workspace:
        engine = ChatEngine.open(Bundle.open(self._bundle), cpu(threads=1))
        workspace = Workspace(Store(self._folder), lambda: (engine, GREEDY))
        workspace.load()
        return workspace

    def ask(self, text: str, *pictures: str) -> Finished:
        """Ask, with sample pictures by name."""
        return ended(self.chat.send(text, [self.chat.attach(PICTURES / name) for name in pictures]))


def ended(events: Iterator[Event]) -> Finished:
    *_, last = events
    assert isinstance(last, Finished)
    return last


@pytest.fixture
def desk(demo_bundle: Callable[[Precision], Asked], tmp_path: Path) -> Desk:
    return Desk(demo_bundle("int8").bundle, tmp_path)


def test_it_remembers_turns_ago_and_after_a_restart(desk: Desk) -> None:
    desk.ask("My name is Anna.")
    desk.ask("My number is 4711.")
    desk.ask("Count to 5")
    finished = desk.ask("What is my name?")
    assert "Anna" in finished.text
    assert finished.usage.reused_tokens > finished.usage.prompt_tokens // 2
    desk.restart()
    finished = desk.ask("What is my number?")
    assert "4711" in finished.text
    assert finished.usage.reused_tokens == 0


def test_an_edited_turn_changes_what_it_knows_and_the_first_branch_still_knows(desk: Desk) -> None:
    desk.ask("My name is Anna.")
    desk.ask("Hello!")
    first = desk.chat.steps[0]
    ended(desk.chat.edit(first.id, "My name is Peter."))
    assert "Peter" in desk.ask("What is my name?").text
    desk.chat.choose_branch(0)
    assert "Anna" in desk.ask("What is my name?").text


def test_what_is_dropped_is_forgotten(desk: Desk) -> None:
    desk.ask("My name is Anna.")
    desk.ask("Hello!")
    desk.chat.drop_oldest(1)
    assert "Anna" not in desk.ask("What is my name?").text


def test_it_knows_which_picture_was_first_and_looks_at_each_once(desk: Desk) -> None:
    question = "Which picture has the yellow circle?"
    assert "second" in desk.ask(question, "shapes.png", "two-circles.jpg").text
    events = list(desk.chat.send("Which picture has the blue square?"))
    assert not any(isinstance(event, VisionProgress) for event in events)
    assert "first" in desk.chat.steps[-1].turn.text
    assert ended(desk.chat.regenerate()).text == desk.chat.steps[-1].turn.text


def test_counting_goes_on_where_it_was_stopped(desk: Desk) -> None:
    spoken = 0
    for event in desk.chat.send("Count to 30"):
        spoken += isinstance(event, Token)
        if spoken == 20:
            desk.chat.cancel()
    assert desk.chat.steps[-1].turn.finish == "cancelled"
    desk.restart()
    ended(desk.chat.continue_answer())
    said = desk.chat.steps[-1].turn
    assert said.text.split() == [str(number) for number in range(1, 31)]
    assert said.finish == "stop"
