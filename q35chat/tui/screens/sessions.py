"""Conversations: search as you type, open, rename, delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.chat.service import SessionSummary
from q35chat.chat.workspace import Workspace
from q35chat.errors import Q35Error
from q35chat.text import pluralise, turn_count
from q35chat.tui.screens.confirm import ConfirmScreen
from q35chat.tui.text import one_line
from q35chat.tui.widgets.key_order import LatestQuery, LineField
from q35chat.tui.widgets.messages import Messages

_DIM = "$foreground 60%"
_RENAMING_FOOT = "Enter keeps the title · Esc goes back to the list"
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
    facts = f"{turn_count(summary.turns):>14}  {age(now - summary.updated):>10}"
    room = max(8, width - len(facts) - 2)
    title = one_line(summary.title or "untitled", room - 1)
    pad = " " * max(1, room - Content(title).cell_length)
    sign = ("● ", "$primary") if is_open else ("  ", "")
    return Content.assemble(sign, title, pad, (facts, _DIM))


class SessionsScreen(ModalScreen[str | None]):
    """Gives the id of the conversation to open."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "leave", "Close", show=False),
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "Previous", show=False),
        Binding("f2", "rename", "Rename", show=False),
        Binding("delete,ctrl+d", "delete", "Delete", show=False, priority=True),
    ]

    def __init__(self, workspace: Workspace, current: str) -> None:
        super().__init__()
        self.messages = Messages()
        self._workspace = workspace
        self._current = current
        self._found: Sequence[SessionSummary] = ()
        self._latest = LatestQuery()
        self._renaming: str | None = None
        self._query = ""

    def compose(self) -> ComposeResult:
        """Search above, list below."""
        with Vertical(classes="dialog"):
            yield Static("Chats", classes="dialog-title", id="sessions-title")
            yield LineField(placeholder="Search titles and texts", id="search")
            yield OptionList()
            yield self.messages
            yield Static(_FOOT, id="sessions-foot", classes="dialog-foot", markup=False)

    def on_mount(self) -> None:
        """All conversations first. The keyboard stays with the search."""
        self.query_one(OptionList).can_focus = False
        search = self.query_one(Input)
        search.cursor_blink = False
        search.focus()
        self._search("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        text = event.input.value
        if self._renaming is None and text != self._latest.asked:
            self._query = text
            self._search(text)

    def _search(self, query: str) -> None:
        question = self._latest.ask(query)

        def work() -> None:
            try:
                found = self._workspace.sessions(query)
            except Q35Error as error:
                self.call_later(self._failed, error)
            else:
                self.call_later(self._show, question, found)

        self.run_worker(work, thread=True, exclusive=True, group="search")

    def _show(self, question: int, found: Sequence[SessionSummary]) -> None:
        if not self._latest.is_newest(question):
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
        self._latest.arrived()

    def _when_found(self, act: Callable[[], None]) -> None:
        """Act on the list of the search as it is now."""
        text = self._query if self._renaming is not None else self.query_one(Input).value
        self._latest.then(text, act)

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
        self._when_found(partial(self._move, by))

    def _move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._found and options.highlighted is not None:
            options.highlighted = (options.highlighted + by) % len(self._found)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if self._renaming is not None:
            self._finish_rename(event.value)
        else:
            self._when_found(self._open)

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
        self._when_found(self._begin_rename)

    def _begin_rename(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return
        self._renaming = chosen.id
        self._head("New title", _RENAMING_FOOT)
        self._fill(one_line(chosen.title, 200))
        self.query_one(Input).action_select_all()

    def _fill(self, text: str) -> None:
        """Put a text into the field, the cursor behind it."""
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)

    def _head(self, title: str, foot: str) -> None:
        self.query_one("#sessions-title", Static).update(title)
        self.query_one("#sessions-foot", Static).update(foot)

    def _finish_rename(self, title: str) -> None:
        if self._renaming is not None and title.strip():
            try:
                self._workspace.rename(self._renaming, title.strip())
            except Q35Error as error:
                self._failed(error)
        self._back_to_search()

    def _back_to_search(self) -> None:
        self._head("Chats", _FOOT)
        with self.prevent(Input.Changed):
            self._fill(self._query)
        self._renaming = None
        self._search(self._query)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a title the key of the command deletes a letter."""
        if action == "delete":
            return self._renaming is None
        return super().check_action(action, parameters)

    def action_delete(self) -> None:
        """Ask, then delete the chosen conversation. The key comes before letters typed earlier:
        it waits for them."""
        self.query_one(Input).call_later(self._when_found, self._ask_delete)

    def _ask_delete(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return
        if chosen.id == self._current:
            self.notify("This chat is open; open another one first", markup=False)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._delete(chosen.id)

        title = one_line(chosen.title or "untitled", 40)
        turns = pluralise(chosen.turns, "turn")
        lost = f"Its {turns} and pictures" if chosen.turns else "Its summary"
        self.app.push_screen(
            ConfirmScreen(
                f"Delete “{title}”?",
                f"{lost} cannot be brought back.",
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
