"""Choose a picture: type to filter, see it before it is attached."""

from __future__ import annotations

from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.counting import readable_size
from q35chat.tui.completion import Choice, listing
from q35chat.tui.widgets.picture import Picture

_MOST_PREVIEWED = 32 << 20
_MOST_LISTED = 200


class PickerScreen(ModalScreen[Path | None]):
    """Gives the chosen picture."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "leave", "Close", show=False),
        Binding("down", "move(1)", "Next", show=False, priority=True),
        Binding("up", "move(-1)", "Previous", show=False, priority=True),
        Binding("tab", "complete", "Complete", show=False, priority=True),
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._choices: tuple[Choice, ...] = ()
        self._word = ""

    def compose(self) -> ComposeResult:
        """Path above, list and preview below."""
        with Vertical(classes="dialog"):
            yield Static("Attach a picture", classes="dialog-title")
            yield Input(placeholder="Type a path", id="path")
            with Horizontal(id="picker-body"):
                yield OptionList()
                with Vertical(id="picker-side"):
                    yield Picture(columns=42, rows=16)
                    yield Static(id="picker-facts", markup=False)
            yield Static(
                "Enter attaches or opens a folder · Tab completes · Esc closes",
                classes="dialog-foot",
            )

    def on_mount(self) -> None:
        """Start in the folder the program runs in."""
        box = self.query_one(Input)
        box.cursor_blink = False
        box.focus()
        self._list("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._word = event.value
        self._list(event.value)

    @work(thread=True, exclusive=True, group="list")
    def _list(self, word: str) -> None:
        choices = listing(word, self._folder, most=_MOST_LISTED)
        self.call_later(self._show, word, choices)

    def _show(self, word: str, choices: tuple[Choice, ...]) -> None:
        if word != self._word:
            return
        self._choices = choices
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(_row(choice)) for choice in choices])
        if choices:
            options.highlighted = 0
        else:
            nothing = Content.styled("no folders or pictures here", "$foreground 60%")
            options.add_option(Option(nothing, disabled=True))
            self._look_at(None)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_index < len(self._choices):
            self._look_at(self._choices[event.option_index].picture)

    def _look_at(self, path: Path | None) -> None:
        self.query_one("#picker-facts", Static).update("")
        if path is None:
            self.query_one(Picture).blank()
        else:
            self._read(path)

    @work(thread=True, exclusive=True, group="read")
    def _read(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= _MOST_PREVIEWED else b""
        except OSError:
            return
        self.call_later(self._show_picture, path, size, data)

    def _show_picture(self, path: Path, size: int, data: bytes) -> None:
        if self._chosen is not None and self._chosen.picture == path:
            self.query_one(Picture).show(data)
            self.query_one("#picker-facts", Static).update(readable_size(size))

    @property
    def _chosen(self) -> Choice | None:
        place = self.query_one(OptionList).highlighted
        if place is None or place >= len(self._choices):
            return None
        return self._choices[place]

    def action_move(self, by: int) -> None:
        """Move in the list while typing."""
        options = self.query_one(OptionList)
        if self._choices and options.highlighted is not None:
            options.highlighted = (options.highlighted + by) % len(self._choices)

    def action_complete(self) -> None:
        """Take the chosen name into the path."""
        if self._chosen is not None:
            self._enter_path(self._chosen.label)

    def _enter_path(self, text: str) -> None:
        box = self.query_one(Input)
        box.value = text
        box.cursor_position = len(text)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self._take()

    @on(OptionList.OptionSelected)
    def _clicked(self) -> None:
        self._take()

    def _take(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return
        if chosen.picture is not None:
            self.dismiss(chosen.picture)
        else:
            self._enter_path(chosen.label)
            self.query_one(Input).focus()

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


def _row(choice: Choice) -> Content:
    colour = "$accent" if choice.picture is not None else "$foreground 70%"
    return Content.styled(choice.label, colour)
