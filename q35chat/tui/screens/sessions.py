"""Conversations: search as you type, open, rename, delete."""

from __future__ import annotations

import time
from collections.abc import Sequence

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.chat.service import SessionSummary, Workspace
from q35chat.counting import counted
from q35chat.errors import Q35Error
from q35chat.tui.screens.confirm import ConfirmScreen
from q35chat.tui.text import one_line
from q35chat.tui.widgets.messages import Messages

_DIM = "$foreground 60%"
_FOOT = "Enter opens · F2 renames · Del or Ctrl+D deletes · Esc closes"


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
    facts = f"{counted(summary.turns, 'turn'):>11}  {age(now - summary.updated):>10}"
    room = max(8, width - len(facts) - 2)
    title = one_line(summary.title or "untitled", room - 1)
    pad = " " * max(1, room - Content(title).cell_length)
    sign = ("● ", "$primary") if is_open else ("  ", "")
    return Content.assemble(sign, title, pad, (facts, _DIM))


class SessionsScreen(ModalScreen[str | None]):
    """Gives the id of the conversation to open."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "leave", "Close", show=False),
        Binding("down", "move(1)", "Next", show=False, priority=True),
        Binding("up", "move(-1)", "Previous", show=False, priority=True),
        Binding("f2", "rename", "Rename", show=False, priority=True),
        Binding("delete,ctrl+d", "delete", "Delete", show=False, priority=True),
    ]

    def __init__(self, workspace: Workspace, current: str) -> None:
        super().__init__()
        self.messages = Messages()
        self._workspace = workspace
        self._current = current
        self._found: Sequence[SessionSummary] = ()
        self._renaming: str | None = None
        self._query = ""

    def compose(self) -> ComposeResult:
        """Search above, list below."""
        with Vertical(classes="dialog"):
            yield Static("Conversations", classes="dialog-title", id="sessions-title")
            yield Input(placeholder="Search titles and texts", id="search")
            yield OptionList()
            yield self.messages
            yield Static(_FOOT, classes="dialog-foot", markup=False)

    def on_mount(self) -> None:
        """All conversations first."""
        search = self.query_one(Input)
        search.cursor_blink = False
        search.focus()
        self._search("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if self._renaming is None:
            self._query = event.value
            self._search(event.value)

    @work(thread=True, exclusive=True, group="search")
    def _search(self, query: str) -> None:
        try:
            found = self._workspace.sessions(query)
        except Q35Error as error:
            self.call_later(self._failed, error)
        else:
            self.call_later(self._show, query, found)

    def _show(self, query: str, found: Sequence[SessionSummary]) -> None:
        if query != self._query:
            return
        self._found = found
        options = self.query_one(OptionList)
        place = options.highlighted or 0
        options.clear_options()
        options.add_options([Option(self._row(summary), id=summary.id) for summary in found])
        if found:
            options.highlighted = min(place, len(found) - 1)
        else:
            options.add_option(Option(Content.styled("nothing found", _DIM), disabled=True))

    def _row(self, summary: SessionSummary) -> Content:
        width = min(84, self.size.width * 95 // 100) - 8
        return row(summary, time.time(), width, is_open=summary.id == self._current)

    def on_resize(self) -> None:
        """The rows have another width."""
        options = self.query_one(OptionList)
        for place, summary in enumerate(self._found):
            options.replace_option_prompt_at_index(place, self._row(summary))

    @property
    def _chosen(self) -> SessionSummary | None:
        place = self.query_one(OptionList).highlighted
        return self._found[place] if place is not None and place < len(self._found) else None

    def action_move(self, by: int) -> None:
        """Move in the list while typing in the search."""
        options = self.query_one(OptionList)
        if self._found and options.highlighted is not None:
            options.highlighted = (options.highlighted + by) % len(self._found)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if self._renaming is not None:
            self._finish_rename(event.value)
        elif self._chosen is not None:
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
        chosen = self._chosen
        if chosen is None:
            return
        self._renaming = chosen.id
        self.query_one("#sessions-title", Static).update("New title (Enter keeps it)")
        self.query_one(Input).value = one_line(chosen.title, 200)

    def _finish_rename(self, title: str) -> None:
        if self._renaming is not None and title.strip():
            try:
                self._workspace.rename(self._renaming, title.strip())
            except Q35Error as error:
                self._failed(error)
        self._back_to_search()

    def _back_to_search(self) -> None:
        self.query_one("#sessions-title", Static).update("Conversations")
        search = self.query_one(Input)
        with self.prevent(Input.Changed):
            search.value = self._query
        self._renaming = None
        self._search(self._query)

    def action_delete(self) -> None:
        """Ask, then delete the chosen conversation."""
        chosen = self._chosen
        if chosen is None or self._renaming is not None:
            return
        if chosen.id == self._current:
            self.notify("This conversation is open; open another one first", markup=False)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._delete(chosen.id)

        title = one_line(chosen.title or "untitled", 40)
        self.app.push_screen(
            ConfirmScreen(
                f"Delete “{title}”?",
                f"Its {counted(chosen.turns, 'turn')} and pictures cannot be brought back.",
                "Delete",
            ),
            answered,
        )

    def _delete(self, session: str) -> None:
        try:
            self._workspace.delete(session)
        except Q35Error as error:
            self._failed(error)
        self._search(self._query)

    def _failed(self, error: Exception) -> None:
        self.notify(str(error), severity="error", markup=False)
