"""What the lines around the conversation show: title, welcome, meters, notice, status, hints.

Pure functions of the session and the draft.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from textual.content import Content

from q35chat.chat.service import ModelInfo
from q35chat.tui.chat.draft import Draft
from q35chat.tui.chat.meter import Reading
from q35chat.tui.chat.session import NoticeText, Session
from q35chat.tui.commands import PANEL_KEYS, key_label
from q35chat.tui.text import count
from q35chat.tui.widgets.bars import Hint
from q35chat.tui.widgets.composer import forecast_lines

_LOADING: Final = "loading the model…"
_NO_MODEL: Final = "no model"


@dataclass(frozen=True, slots=True)
class View:
    """`model` is None until one answers, for good where it `failed`. `empty`: the welcome stands
    where the turns would. `status` are wordings of one line, the best first."""

    title: str
    model_state: str
    model: ModelInfo | None
    failed: bool
    earlier: int
    empty: bool
    notice: NoticeText
    reading: Reading
    status: tuple[Content, ...]
    hints: tuple[Hint, ...]
    always: tuple[Hint, ...]


def view_of(
    session: Session,
    draft: Draft,
    key: Callable[[str], str],
    *,
    ways: int | None,
    following: bool,
) -> View:
    """All that is shown now. `key` names the key of a command; `ways` is how many a panel on
    screen offers, None without one; `following`: the newest text is in sight."""
    conversation = session.conversation
    model = conversation.model if conversation is not None else None
    if session.loading and not session.opening:
        model = None
    failed = session.state == "failed"
    begun = conversation is not None and bool(conversation.summary)
    return View(
        title=conversation.title if conversation is not None else "",
        model_state=model.name if model is not None else _NO_MODEL if failed else _LOADING,
        model=model,
        failed=failed,
        earlier=session.earlier,
        empty=not (session.running or begun or session.steps),
        notice=session.notice,
        reading=session.meter.reading(),
        status=_status(session, draft),
        hints=(*_hints(session, draft, key, ways, following), (key("palette"), "commands")),
        always=((key("help"), "help"), (key("quit"), "quit")),
    )


def busy(session: Session) -> str:
    """What has to end before something else can begin; empty where nothing has."""
    if session.loading:
        return "The chat is still being opened" if session.opening else "The model is still loading"
    return "The answer is still being written; Esc stops it first" if session.running else ""


def obstacle(session: Session) -> str:
    """Why no turn can be begun or changed now; empty where one can."""
    absent = "" if session.conversation else "There is no model yet; the panel says why"
    return busy(session) or absent


def missing(session: Session) -> str:
    """What a queued message waits for."""
    if session.available is not None:
        return "the picture is read"
    return "the chat is open" if session.opening else "the model is loaded"


def thinking_words(session: Session) -> str:
    """How thinking is set, or why there is no model to think."""
    conversation = session.available
    if conversation is None:
        absent = _NO_MODEL if session.state == "failed" else _LOADING
        return f"{'opening the chat…' if session.opening else absent} · you can write already"
    settings = conversation.settings()
    if not settings.thinking:
        return "thinking off"
    if settings.thinking_budget is None:
        return "thinking on"
    return f"thinking on, at most {count(settings.thinking_budget)} tokens"


def _status(session: Session, draft: Draft) -> tuple[Content, ...]:
    if session.remark:
        return (Content(session.remark),)
    if draft.forecast is not None and not session.running and not draft.composer.empty:
        return forecast_lines(draft.forecast)
    return (Content(thinking_words(session)),)


def _hints(
    session: Session,
    draft: Draft,
    key: Callable[[str], str],
    ways: int | None,
    following: bool,
) -> list[Hint]:
    if session.running:
        below = [] if following else [(key("follow"), "↓ new text below")]
        return [(key("stop"), "stopping…" if session.state == "stopping" else "stop"), *below]
    if ways is not None:
        first, last = key_label(PANEL_KEYS[0]), key_label(PANEL_KEYS[max(ways, 1) - 1])
        choose = [("–".join(dict.fromkeys((first, last))), "choose")] if ways else []
        return [*choose, (key("stop"), "close")]
    if draft.editing is not None:
        return [("Enter", "resend"), (key("stop"), "cancel"), (key("edit"), "earlier question")]
    if session.steps:
        return [("Enter", "send"), (key("regenerate"), "retry"), (key("edit"), "edit")]
    return [("Enter", "send"), ("Ctrl+J", "new line")]
