"""The session and the view, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from q35chat.chat.events import Event, Notice, PromptPlan, Token
from q35chat.chat.service import Forecast
from q35chat.tui.chat.meter import Capacity
from q35chat.tui.chat.session import Session
from q35chat.tui.chat.view import busy, hints, missing, model_state, obstacle, status
from q35chat.tui.commands import Keymap
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue


def loaded() -> Session:
    """A session over a chat of two turns."""
    workspace = ScriptedWorkspace()
    session = Session(workspace)
    session.show(workspace.add("Norway", dialogue(2)))
    session.loaded()
    return session


def written(
    forecast: Forecast | None, editing: str | None = None, *, rewrites: bool = False
) -> Any:
    """A draft, as far as it is shown."""
    composer = SimpleNamespace(empty=forecast is None)
    return SimpleNamespace(forecast=forecast, composer=composer, editing=editing, rewrites=rewrites)


def said(session: Session, draft: Any = None) -> str:
    return status(session, draft or written(None))[0].plain


def hint(session: Session, draft: Any = None, ways: int | None = None) -> tuple[str, str]:
    """The first of the keys that matter now."""
    draft = draft or written(None)
    return hints(session, draft, Keymap().label, ways=ways, following=True)[0]


def tokens(number: int) -> Iterator[Event]:
    yield PromptPlan(10, 0, 0, 2_048)
    yield Notice("read again")
    for step in range(number):
        yield Token(step, "x", "answer", 1.0, 2.0, 2_000 - step)


def test_a_session_loads_until_there_is_a_conversation_or_there_can_be_none() -> None:
    session = Session(ScriptedWorkspace())
    assert (session.state, session.available) == ("loading", None)
    assert said(session) == "loading the model… · you can write already"
    session.loaded()
    assert session.state == "failed"
    assert (busy(session), obstacle(session)) == ("", "There is no model yet; the panel says why")
    assert model_state(session) == "no model"
    session = loaded()
    assert (session.state, session.available) == ("ready", session.conversation)
    assert obstacle(session) == ""


def test_while_another_chat_is_opened_the_model_stays_and_nothing_is_available() -> None:
    session = loaded()
    session.load(opening=True)
    assert session.available is None
    assert missing(session) == "the chat is open"
    assert session.model is not None
    assert said(session) == "opening the chat… · you can write already"
    session.load()
    assert missing(session) == "the model is loaded"
    assert session.model is None
    session.loaded()
    assert session.state == "ready"


def test_of_a_server_it_is_said_that_it_is_asked_and_not_that_a_model_loads() -> None:
    workspace = ScriptedWorkspace()
    workspace.remote = True
    session = Session(workspace)
    assert model_state(session) == "asking the server…"
    assert said(session) == "asking the server… · you can write already"
    assert (busy(session), missing(session)) == (
        "The server is still asked",
        "the server has answered",
    )
    session.load()
    assert model_state(session) == "loading the model…"


def test_a_turn_runs_is_stopped_and_ends() -> None:
    session = loaded()
    session.queued = True
    turn = session.begin(tokens(3))
    assert (session.state, session.queued, session.running) == ("running", False, True)
    session.meter.begin()
    turn.consume()
    batch = session.frame()
    assert batch is not None
    assert batch.ended
    assert (batch.answer, session.notice.text, session.meter.made) == ("xxx", "read again", 3)
    session.stop()
    assert (session.state, session.running) == ("stopping", True)
    assert hint(session) == ("Esc", "stopping…")
    session.end()
    assert (session.state, session.turn) == ("ready", None)


@pytest.mark.parametrize(
    ("used", "panel", "text"),
    [
        (1_000, False, ""),
        (1_900, False, "93% of the capacity is used · 148 slots are left"),
        (1_900, True, ""),
    ],
)
def test_the_capacity_is_warned_of_unless_a_panel_says_it(
    used: int, panel: bool, text: str
) -> None:
    session = loaded()
    session.meter.capacity = Capacity(2_048, used)
    session.warn(panel=panel)
    assert session.notice.text == text


def test_a_notice_of_the_engine_stays_until_the_next_turn() -> None:
    session = loaded()
    turn = session.begin(tokens(0))
    turn.consume()
    session.frame()
    session.end()
    session.warn()
    assert session.notice.text == "read again"
    session.begin(iter(()))
    assert session.notice.text == ""


def test_the_status_says_what_the_draft_needs_and_a_remark_goes_before_it() -> None:
    session = loaded()
    draft = written(Forecast(40, 0, 100, 1_908, True))
    assert said(session, draft).startswith("this turn needs 40 slots")
    session.remark = "no command"
    assert said(session, draft) == "no command"


def test_hints_are_for_what_can_be_done_next() -> None:
    session = loaded()
    editing = written(None, editing="1")
    assert hint(session) == ("Enter", "send")
    assert hint(session, editing) == ("Enter", "resend")
    assert hint(session, written(None, editing="1", rewrites=True)) == ("Enter", "keep")
    assert hint(session, ways=2) == ("F5–F6", "choose")
    assert hint(session, ways=0) == ("Esc", "close")
