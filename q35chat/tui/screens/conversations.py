"""Conversations: search as you type, open where the words are, rename, tag, pin, delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.chat.service import ListedConversation
from q35chat.chat.workspace import Workspace
from q35chat.errors import Q35Error
from q35chat.text import turn_count
from q35chat.tui.screens.dialog import DIM, SearchDialog
from q35chat.tui.text import one_line, slots
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


def rows_of(summary: ListedConversation, now: float, width: int, *, is_open: bool) -> Content:
    """One conversation on two lines: its title, and what is known of it or was found in it."""
    old = f"  {age(now - summary.updated)}"
    facts = one_line(" ".join(summary.tags), max(0, width // 2 - len(old))) + old
    room = max(8, width - Content(facts).cell_length - 4)
    title = one_line(summary.title or "untitled", room - 1)
    pad = " " * max(1, room - Content(title).cell_length)
    sign = ("● ", "$primary") if is_open else ("  ", "")
    pin = ("▲ ", "$accent") if summary.pinned else ("  ", "")
    below = summary.excerpt or " · ".join(
        part
        for part in (
            turn_count(summary.turns),
            summary.model,
            slots(summary.slots) if summary.slots else "",
        )
        if part
    )
    line = Content.styled(one_line(below, width - 4), DIM)
    return Content.assemble(sign, pin, title, pad, (facts, DIM), "\n    ", line)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The conversation to open, and where it was searched for, the turn to go to."""

    conversation_id: str
    turn: str = ""


@dataclass(frozen=True, slots=True)
class _Writing:
    """What is written in the field in place of a search, and what keeps it."""

    keep: Callable[[str], object]
    title: str
    words: str


class ConversationsScreen(SearchDialog[Chosen | None, Sequence[ListedConversation]]):
    """Gives the conversation to open; `leave_current` is called when the one that is open was
    deleted. What is deleted can be brought back until the screen is left; then `delete` is called
    with the ids that are not."""

    TITLE = "Chats"
    FOOT = "Enter opens · F2 title · F3 tags · F4 pin · Del deletes · Esc closes"
    PLACEHOLDER = "Search titles and texts"
    BINDINGS = [  # noqa: RUF012
        Binding("f2", "rename", "Rename", show=False),
        Binding("f3", "tag", "Tag", show=False),
        Binding("f4", "pin", "Pin", show=False),
        Binding("delete,ctrl+d", "delete", "Delete", show=False, priority=True),
        Binding("ctrl+z", "undo", "Bring back", show=False, priority=True),
    ]

    def __init__(
        self,
        workspace: Workspace,
        current: str,
        leave_current: Callable[[], None],
        delete: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__()
        self.messages = Messages()
        self._workspace = workspace
        self._current = current
        self._leave_current = leave_current
        self._delete = delete
        self._trashed: list[ListedConversation] = []
        self._found: Sequence[ListedConversation] = ()
        self._writing: _Writing | None = None
        self._query = ""

    def body(self) -> ComposeResult:
        """Search above, list below."""
        yield from super().body()
        yield self.messages

    @property
    def wanted(self) -> str:
        """What is searched for, also while a title is in the field."""
        return self.field.value if self._writing is None else self._query

    def look_up(self, text: str) -> None:
        """List the conversations that hold a text."""
        self._query = text
        super().look_up(text)

    def find(self, text: str) -> Sequence[ListedConversation] | None:
        """The conversations that hold a text."""
        return self._try(partial(self._workspace.listed, text))

    def _try(self, act: Callable[[], T]) -> T | None:
        """What the store gives; where it fails, a message says why."""
        try:
            return act()
        except Q35Error as error:
            self.call_later(self.notify, str(error), severity="error", markup=False)
            return None

    def rows(self, found: Sequence[ListedConversation]) -> tuple[Sequence[Option], int]:
        """Two lines each, the pinned ones first; the choice stays at its place."""
        self._found = sorted(found, key=lambda summary: not summary.pinned)
        options = [Option(self._row(summary), id=summary.id) for summary in self._found]
        nothing = Option(Content.styled("nothing found", DIM), disabled=True)
        return options or [nothing], min(self.options.highlighted or 0, len(found) - 1)

    def _row(self, summary: ListedConversation) -> Content:
        is_open = summary.id == self._current
        return rows_of(summary, time.time(), self.inner_width, is_open=is_open)

    def on_resize(self) -> None:
        """The rows have another width."""
        for place, summary in enumerate(self._found):
            self.options.replace_option_prompt_at_index(place, self._row(summary))

    @property
    def _chosen(self) -> ListedConversation | None:
        place = self.options.highlighted
        return self._found[place] if place is not None and place < len(self._found) else None

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        if self._writing is None:
            self.when_listed(self._open)
        else:
            self._try(partial(self._writing.keep, event.value.strip()))
            self._back_to_search()

    def _open(self) -> None:
        self._give(self._chosen)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._give(self._found[event.option_index])

    def _give(self, summary: ListedConversation | None) -> None:
        if summary is not None:
            self.dismiss(Chosen(summary.id, summary.hit))

    def on_unmount(self) -> None:
        """What was deleted and not brought back goes for good."""
        if self._trashed:
            self._delete([summary.id for summary in self._trashed])

    def action_leave(self) -> None:
        """Leave what is written, or the screen."""
        if self._writing is None:
            self.dismiss(None)
        else:
            self._back_to_search()

    # -- changing one

    def action_rename(self) -> None:
        """Type a new title for the chosen conversation."""
        self.when_listed(self._begin_rename)

    def _begin_rename(self) -> None:
        chosen = self._chosen
        if chosen is not None:
            keep = partial(self._rename, chosen.id)
            self._write(_Writing(keep, "New title", one_line(chosen.title, 200)))

    def _rename(self, conversation_id: str, title: str) -> None:
        if title:
            self._workspace.rename(conversation_id, title)

    def action_tag(self) -> None:
        """Type tags for the chosen conversation."""
        self.when_listed(self._begin_tagging)

    def _begin_tagging(self) -> None:
        chosen = self._chosen
        if chosen is not None:
            keep = partial(self._workspace.tag, chosen.id)
            self._write(_Writing(keep, "Tags, such as #work #later", " ".join(chosen.tags)))

    def _write(self, writing: _Writing) -> None:
        self._writing = writing
        self._head(writing.title, "", "Enter keeps it · Esc goes back to the list")
        self.fill(writing.words)
        self.field.action_select_all()

    def _head(self, title: str, placeholder: str, foot: str) -> None:
        self.query_one(".dialog-title", Static).update(title)
        self.field.placeholder = placeholder
        self.query_one(Foot).say(foot)

    def _back_to_search(self) -> None:
        self._head(self.TITLE, self.PLACEHOLDER, self.FOOT)
        with self.prevent(Input.Changed):
            self.fill(self._query)
        self._writing = None
        self.look_up(self._query)

    def action_pin(self) -> None:
        """Keep the chosen conversation at the top, or no longer."""
        self.when_listed(self._pin)

    def _pin(self) -> None:
        chosen = self._chosen
        if chosen is not None and self._writing is None:
            self._try(partial(self._workspace.pin, chosen.id, not chosen.pinned))
            self.look_up(self._query)

    # -- deleting one

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a field that is written the keys of the commands are those of the field."""
        if action in {"delete", "undo"}:
            return self._writing is None
        return super().check_action(action, parameters)

    def action_delete(self) -> None:
        """Delete the chosen conversation. The key comes before letters typed earlier: it waits for
        them."""
        self.field.call_later(self.when_listed, self._trash)

    def _trash(self) -> None:
        chosen = self._chosen
        if chosen is None or self._try(partial(self._trashing, chosen.id)) is None:
            return
        self._trashed.append(chosen)
        self.show_found([summary for summary in self._found if summary.id != chosen.id])
        self._say(f"Deleted “{one_line(chosen.title or 'untitled', 40)}” · Ctrl+Z brings it back")
        if chosen.id == self._current:
            self._current = ""
            self._leave_current()

    def _trashing(self, conversation_id: str) -> bool:
        self._workspace.trash(conversation_id)
        return True

    def action_undo(self) -> None:
        """Bring back the conversation that was deleted last."""
        if not self._trashed:
            self._say("Nothing was deleted here")
            return
        summary = self._trashed.pop()
        self._try(partial(self._workspace.restore, summary.id))
        self._say(f"“{one_line(summary.title or 'untitled', 40)}” is back")
        self.look_up(self._query)

    def _say(self, text: str) -> None:
        self.notify(text, title="what is deleted", markup=False)
