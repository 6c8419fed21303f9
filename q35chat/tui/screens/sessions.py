"""Conversations: search as you type, open, rename, delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.chat.service import SessionSummary
from q35chat.chat.workspace import Workspace
from q35chat.errors import Q35Error
from q35chat.text import pluralise, turn_count
from q35chat.tui.screens.confirm import ConfirmScreen
from q35chat.tui.screens.dialog import DIM, SearchDialog
from q35chat.tui.text import one_line
from q35chat.tui.widgets.messages import Messages
from q35chat.tui.widgets.pressable import Foot

T = TypeVar("T")


def age(seconds: float) -> str:
    """How long ago, in the largest unit that fits, up to ninety-nine days."""
    if seconds >= 100 * 86_400:
        return "long ago"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def row(summary: SessionSummary, now: float, width: int, *, is_open: bool) -> Content:
    """One conversation on one line."""
    facts = f"{turn_count(summary.turns):>14}  {age(now - summary.updated):>10}"
    room = max(8, width - len(facts) - 2)
    title = one_line(summary.title or "untitled", room - 1)
    pad = " " * max(1, room - Content(title).cell_length)
    sign = ("● ", "$primary") if is_open else ("  ", "")
    return Content.assemble(sign, title, pad, (facts, DIM))


class SessionsScreen(SearchDialog[str | None, Sequence[SessionSummary]]):
    """Gives the id of the conversation to open; `leave_current` is called when the one that is open
    was deleted."""

    TITLE = "Chats"
    FOOT = "Enter opens · F2 renames · Del or Ctrl+D deletes · Esc closes"
    PLACEHOLDER = "Search titles and texts"
    BINDINGS = [  # noqa: RUF012
        Binding("f2", "rename", "Rename", show=False),
        Binding("delete,ctrl+d", "delete", "Delete", show=False, priority=True),
    ]

    def __init__(
        self,
        workspace: Workspace,
        current: str,
        leave_current: Callable[[], None],
        forget_draft: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._forget_draft = forget_draft
        self.messages = Messages()
        self._workspace = workspace
        self._current = current
        self._leave_current = leave_current
        self._found: Sequence[SessionSummary] = ()
        self._renaming: str | None = None
        self._query = ""

    def body(self) -> ComposeResult:
        """Search above, list below."""
        yield from super().body()
        yield self.messages

    @property
    def wanted(self) -> str:
        """What is searched for, also while a title is in the field."""
        return self.field.value if self._renaming is None else self._query

    def look_up(self, text: str) -> None:
        """List the conversations that hold a text."""
        self._query = text
        super().look_up(text)

    def find(self, text: str) -> Sequence[SessionSummary] | None:
        """The conversations that hold a text."""
        return self._try(partial(self._workspace.sessions, text))

    def _try(self, act: Callable[[], T]) -> T | None:
        """What the store gives; where it fails, a message says why."""
        try:
            return act()
        except Q35Error as error:
            self.call_later(self.notify, str(error), severity="error", markup=False)
            return None

    def rows(self, found: Sequence[SessionSummary]) -> tuple[Sequence[Option], int]:
        """A line each; the choice stays at its place."""
        self._found = found
        options = [Option(self._row(summary), id=summary.id) for summary in found]
        nothing = Option(Content.styled("nothing found", DIM), disabled=True)
        return options or [nothing], min(self.options.highlighted or 0, len(found) - 1)

    def _row(self, summary: SessionSummary) -> Content:
        is_open = summary.id == self._current
        return row(summary, time.time(), self.inner_width, is_open=is_open)

    def on_resize(self) -> None:
        """The rows have another width."""
        for place, summary in enumerate(self._found):
            self.options.replace_option_prompt_at_index(place, self._row(summary))

    @property
    def _chosen(self) -> SessionSummary | None:
        place = self.options.highlighted
        return self._found[place] if place is not None and place < len(self._found) else None

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if self._renaming is not None:
            self._finish_rename(self._renaming, event.value.strip())
        else:
            self.when_listed(self._open)

    def _open(self) -> None:
        if self._chosen is not None:
            self.dismiss(self._chosen.id)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_leave(self) -> None:
        """Leave the renaming, or the screen."""
        if self._renaming is None:
            self.dismiss(None)
        else:
            self._back_to_search()

    def action_rename(self) -> None:
        """Type a new title for the chosen conversation."""
        self.when_listed(self._begin_rename)

    def _begin_rename(self) -> None:
        chosen = self._chosen
        if chosen is not None:
            self._renaming = chosen.id
            self._head("New title", "Enter keeps the title · Esc goes back to the list")
            self.fill(one_line(chosen.title, 200))
            self.field.action_select_all()

    def _head(self, title: str, foot: str) -> None:
        self.query_one(".dialog-title", Static).update(title)
        self.query_one(Foot).say(foot)

    def _finish_rename(self, session: str, title: str) -> None:
        if title:
            self._try(partial(self._workspace.rename, session, title))
        self._back_to_search()

    def _back_to_search(self) -> None:
        self._head(self.TITLE, self.FOOT)
        with self.prevent(Input.Changed):
            self.fill(self._query)
        self._renaming = None
        self.look_up(self._query)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a title the key of the command deletes a letter."""
        if action == "delete":
            return self._renaming is None
        return super().check_action(action, parameters)

    def action_delete(self) -> None:
        """Ask, then delete the chosen conversation. The key comes before letters typed earlier:
        it waits for them."""
        self.field.call_later(self.when_listed, self._ask_delete)

    def _ask_delete(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.show_found([summary for summary in self._found if summary.id != chosen.id])
                self.run_worker(partial(self._delete, chosen.id), thread=True, group="delete")

        question = f"Delete “{one_line(chosen.title or 'untitled', 40)}”?"
        lost = (
            f"Its {pluralise(chosen.turns, 'turn')} and pictures" if chosen.turns else "Its summary"
        )
        then = " A new chat takes its place." if chosen.id == self._current else ""
        detail = f"{lost} cannot be brought back.{then}"
        self.app.push_screen(ConfirmScreen(question, detail, "Delete"), answered)

    def _delete(self, session: str) -> None:
        """Delete a conversation and its draft; that takes seconds where there are many. For a
        worker thread."""

        def delete() -> bool:
            self._workspace.delete(session)
            self._forget_draft(session)
            return True

        self.app.call_later(self._deleted, session, self._try(delete) or False)

    def _deleted(self, session: str, gone: bool) -> None:
        if gone and session == self._current:
            self._current = ""
            self._leave_current()
        if self.is_attached and self._renaming is None:
            self.look_up(self._query)
