"""What the lines around the conversation show of the session and the draft, in words.

Pure functions of the session and the draft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from textual.content import Content

from q35chat.tui.chat.draft import Draft
from q35chat.tui.chat.meter import Reading
from q35chat.tui.chat.session import Session
from q35chat.tui.commands import PANEL_KEYS, When, key_label
from q35chat.tui.text import count
from q35chat.tui.widgets.bars import Hint
from q35chat.tui.widgets.composer import forecast_lines

_NO_MODEL: Final = "no model"
_TOLD_TOKENS: Final = 10


def model_state(session: Session) -> str:
    """The model that answers, or what becomes of it."""
    if session.model is not None:
        return session.model.name
    return _absent(session)


def _absent(session: Session) -> str:
    if session.state == "failed":
        return _NO_MODEL
    return "asking the server…" if session.asking else "loading the model…"


def window_title(session: Session, reading: Reading) -> str:
    """The chat, and how far its answer is, for the title of the window."""
    conversation = session.conversation
    title = (conversation.title if conversation is not None else "") or "q35chat"
    if not session.running:
        return title
    if reading.progress is not None:
        return f"● {reading.progress.fraction:.0%} · {title}"
    tens = reading.made // _TOLD_TOKENS * _TOLD_TOKENS
    return f"● {count(tens)} tok · {title}" if tens else f"● {title}"


def busy(session: Session) -> str:
    """What has to end before something else can begin; empty where nothing has."""
    if session.loading:
        if session.opening:
            return "The chat is still being opened"
        return "The server is still asked" if session.asking else "The model is still loading"
    return "The answer is still being written; Esc stops it first" if session.running else ""


def obstacle(session: Session, when: When = "idle") -> str:
    """Why a command that can be run `when` it says cannot be run now; empty where it can."""
    there = session.conversation is not None
    if when == "always" or (when == "chat" and there and not session.opening):
        return ""
    absent = "" if there or when == "free" else "There is no model yet; the panel says why"
    return busy(session) or absent


def missing(session: Session) -> str:
    """What a queued message waits for."""
    if session.running:
        return "the answer is complete"
    if session.available is not None:
        return "the picture is read"
    if session.opening:
        return "the chat is open"
    return "the server has answered" if session.asking else "the model is loaded"


def thinking_words(session: Session) -> str:
    """How thinking is set, or why there is no model to think."""
    conversation = session.available
    if conversation is None:
        on_its_way = "opening the chat…" if session.opening else _absent(session)
        return f"{on_its_way} · you can write already"
    settings = conversation.settings()
    if not settings.thinking:
        return "thinking off"
    if settings.thinking_budget is None:
        return "thinking on"
    return f"thinking on, at most {count(settings.thinking_budget)} tokens"


def status(session: Session, draft: Draft) -> tuple[Content, ...]:
    """Wordings of one line, the best first."""
    if session.remark:
        return (Content(session.remark),)
    if draft.forecast is not None and not session.running and not draft.composer.empty:
        return forecast_lines(draft.forecast)
    return (Content(thinking_words(session)),)


def hints(
    session: Session,
    draft: Draft,
    key: Callable[[str], str],
    *,
    ways: int | None,
    following: bool,
) -> list[Hint]:
    """The keys for what can be done next. `key` names the key of a command; `ways` is how many a
    panel on screen offers, None without one; `following`: the newest text is in sight."""
    if session.running:
        below = [] if following else [(key("follow"), "↓ new text below")]
        stop = "stopping…" if session.state == "stopping" else "stop"
        return [(key("stop"), "keep as a draft" if session.queued else stop), *below]
    if ways is not None:
        first, last = key_label(PANEL_KEYS[0]), key_label(PANEL_KEYS[max(ways, 1) - 1])
        choose = [("–".join(dict.fromkeys((first, last))), "choose")] if ways else []
        return [*choose, (key("stop"), "close")]
    if draft.rewrites:
        return [("Enter", "keep"), (key("stop"), "cancel"), (key("edit_answer"), "earlier answer")]
    if draft.editing is not None:
        return [("Enter", "resend"), (key("stop"), "cancel"), (key("edit"), "earlier question")]
    if session.steps:
        return [("Enter", "send"), (key("regenerate"), "retry"), (key("edit"), "edit")]
    return [("Enter", "send"), ("Ctrl+J", "new line")]
