"""What dialogs have in common: a box with title and foot, and a list under a field that finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static
from textual.widgets.option_list import Option

from q35chat.tui.sizes import HEIGHTS, WIDTHS
from q35chat.tui.widgets.key_order import LatestQuery, LineField
from q35chat.tui.widgets.options import Options
from q35chat.tui.widgets.pressable import Foot

T = TypeVar("T")
Found = TypeVar("Found")
DIM = "$foreground 60%"
_AROUND = 8


class ClosesOnce(Screen[T]):
    """Closes once, however often and however soon it is told to: what a second time would take
    away is the screen below."""

    def dismiss(self, result: T | None = None) -> AwaitComplete:
        """Close once: what is not there as a whole closes when it is, what is closed stays so."""
        if not self.is_mounted:
            self.call_later(self._close, result)
        elif self.is_active:
            return super().dismiss(result)
        return AwaitComplete()

    def _close(self, result: T | None = None) -> None:
        self.dismiss(result)  # no handler may wait for it


class Dialog(ModalScreen[T], ClosesOnce[T]):
    """A box in the middle of the screen, at most `WIDEST` cells wide; its foot names the keys."""

    BINDINGS = [Binding("escape", "leave", "Close", show=False)]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = HEIGHTS
    HORIZONTAL_BREAKPOINTS = WIDTHS
    TITLE = ""
    FOOT: ClassVar[str] = ""
    WIDEST: ClassVar[int] = 84

    def compose(self) -> ComposeResult:
        """Title, body, foot."""
        with Vertical(classes="dialog"):
            yield Static(self.TITLE or "", classes="dialog-title")
            yield from self.body()
            yield Foot(self.FOOT)

    def body(self) -> ComposeResult:
        """What stands between title and foot."""
        raise NotImplementedError

    @property
    def inner_width(self) -> int:
        """How wide a line of the body may be."""
        return min(self.WIDEST, self.app.size.width * 95 // 100) - _AROUND

    def action_leave(self) -> None:
        """Close without a result."""
        self._close()


class SearchDialog(Dialog[T], Generic[T, Found]):
    """A list of what a worker finds for the text of a field. The keyboard stays with the field; a
    key for the list waits until the one that it means is there."""

    BINDINGS = [  # noqa: RUF012
        Binding("down", "move('down')", "Next", show=False),
        Binding("up", "move('up')", "Previous", show=False),
    ]
    PLACEHOLDER: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.field, self.options = LineField(placeholder=self.PLACEHOLDER), Options()
        self._latest = LatestQuery()

    def body(self) -> ComposeResult:
        """Field above, list below."""
        yield self.field
        yield self.options

    def on_mount(self) -> None:
        """List what there is without a text."""
        self.options.can_focus = self.field.cursor_blink = False
        self.field.focus()
        self.look_up("")

    @property
    def wanted(self) -> str:
        """The text that the list is to be for."""
        return self.field.value

    def fill(self, text: str) -> None:
        """Put a text into the field, the cursor behind it."""
        self.field.value = text
        self.field.cursor_position = len(text)

    @on(Input.Changed)
    def _typed(self) -> None:
        if self.wanted != self._latest.asked:
            self.look_up(self.wanted)

    def look_up(self, text: str) -> None:
        """Find in a worker and list it."""
        question = self._latest.ask(text)

        def work() -> None:
            self.call_later(self._arrived, question, self.find(text))

        self.run_worker(work, thread=True, exclusive=True, group="list")

    def find(self, text: str) -> Found | None:
        """What there is for a text; with None the list stays as it is. For a worker thread."""
        raise NotImplementedError

    def _arrived(self, question: int, found: Found | None) -> None:
        if found is not None and self._latest.is_newest(question):
            self.show_found(found)
            self._latest.arrived()

    def show_found(self, found: Found) -> None:
        """Show what was found."""
        options, first = self.rows(found)
        self.options.set_options(options)
        if not all(option.disabled for option in options):
            self.options.highlighted = first

    def rows(self, found: Found) -> tuple[Sequence[Option], int]:
        """The lines of the list, and which of them is chosen at first."""
        raise NotImplementedError

    def when_listed(self, act: Callable[[], None]) -> None:
        """Act on the list of the text as it is now."""
        self._latest.then(self.wanted, act)

    def action_move(self, to: str) -> None:
        """Move in the list while typing."""
        options = self.options
        self.when_listed(options.action_cursor_down if to == "down" else options.action_cursor_up)
