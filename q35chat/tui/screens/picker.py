"""Choose a picture: type to filter, see it before it is attached."""

from __future__ import annotations

import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.text import readable_size
from q35chat.tui.chat.completion import Choice, listing
from q35chat.tui.text import clean
from q35chat.tui.widgets.key_order import LatestQuery, LineField
from q35chat.tui.widgets.picture import Picture

_MOST_PREVIEWED = 32 << 20
_MOST_LISTED = 200
_WIDE = 100
_COLUMNS, _FEW_COLUMNS, _ROWS = 42, 26, 16


class _Entry(Option):
    """A line of the list: what it puts into the path, and the picture there if it is one."""

    def __init__(self, path: str, picture: Path | None = None, name: str = "") -> None:
        super().__init__(_row(name or _last(path), is_picture=picture is not None))
        self.path = path
        self.picture = picture


class PickerScreen(ModalScreen[Path | None]):
    """Gives the chosen picture."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape", "leave", "Close", show=False),
        Binding("down", "move(1)", "Next", show=False),
        Binding("up", "move(-1)", "Previous", show=False),
        Binding("tab", "complete", "Complete", show=False),
    ]

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._latest = LatestQuery()
        self._entries = 0

    def compose(self) -> ComposeResult:
        """Path above, list and preview below."""
        with Vertical(classes="dialog"):
            yield Static("Attach a picture", classes="dialog-title")
            yield LineField(placeholder="Type a path", id="path")
            with Horizontal(id="picker-body"):
                yield OptionList()
                with Vertical(id="picker-side"):
                    yield Picture(columns=_COLUMNS, rows=_ROWS)
                    yield Static(id="picker-facts", markup=False)
            yield Static(
                "Enter attaches or opens a folder · Tab completes · Esc closes",
                classes="dialog-foot",
            )

    def on_mount(self) -> None:
        """Start in the folder the program runs in. The keyboard stays with the path."""
        self.query_one(OptionList).can_focus = False
        box = self.query_one(Input)
        box.cursor_blink = False
        box.focus()
        self._list("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if event.input.value != self._latest.asked:
            self._list(event.input.value)

    def _list(self, word: str) -> None:
        question = self._latest.ask(word)

        def work() -> None:
            self.call_later(self._show, question, listing(word, self._folder, most=_MOST_LISTED))

        self.run_worker(work, thread=True, exclusive=True, group="list")

    def _show(self, question: int, choices: tuple[Choice, ...]) -> None:
        if not self._latest.is_newest(question):
            return
        options, up = self.query_one(OptionList), above(self._latest.asked or "")
        first = [] if up is None else [_Entry(up, name="..")]
        options.clear_options()
        options.add_options([*first, *(_Entry(found.label, found.picture) for found in choices)])
        if not choices:
            nothing = Content.styled("no folders or pictures here", "$foreground 60%")
            options.add_option(Option(nothing, disabled=True))
            self._look_at(None)
        self._entries = len(first) + len(choices)
        if self._entries:
            options.highlighted = min(len(first), self._entries - 1)
        pictures = any(found.picture is not None for found in choices)
        self.query_one("#picker-side").display = pictures
        self._latest.arrived()

    def on_resize(self) -> None:
        """The preview has as much room as the list leaves."""
        columns = _COLUMNS if self.size.width >= _WIDE else _FEW_COLUMNS
        self.query_one(Picture).limit(columns, _ROWS)

    def _when_listed(self, act: Callable[[], None]) -> None:
        """Act on the list of the path as it is now."""
        self._latest.then(self.query_one(Input).value, act)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if isinstance(event.option, _Entry):
            self._look_at(event.option.picture)

    def _look_at(self, path: Path | None) -> None:
        self.query_one("#picker-facts", Static).update("")
        if path is None:
            self.query_one(Picture).blank()
        else:
            self._read(path)

    @work(thread=True, exclusive=True, group="read")
    def _read(self, path: Path) -> None:
        try:
            facts, data = _previewed(path)
        except OSError:
            facts, data = "cannot be read", b""
        self.call_later(self._show_picture, path, facts, data)

    def _show_picture(self, path: Path, facts: str, data: bytes) -> None:
        if self._chosen is not None and self._chosen.picture == path:
            self.query_one(Picture).show(data)
            self.query_one("#picker-facts", Static).update(facts)

    @property
    def _chosen(self) -> _Entry | None:
        option = self.query_one(OptionList).highlighted_option
        return option if isinstance(option, _Entry) else None

    def action_move(self, by: int) -> None:
        """Move in the list while typing."""
        self._when_listed(partial(self._move, by))

    def _move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._entries and options.highlighted is not None:
            options.highlighted = (options.highlighted + by) % self._entries

    def action_complete(self) -> None:
        """Take the chosen name into the path."""

        def complete() -> None:
            if self._chosen is not None:
                self._enter_path(self._chosen.path)

        self._when_listed(complete)

    def _enter_path(self, text: str) -> None:
        box = self.query_one(Input)
        box.value = text
        box.cursor_position = len(text)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self._when_listed(lambda: self._take(self._chosen))

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        if isinstance(event.option, _Entry):
            self._take(event.option)

    def _take(self, entry: _Entry | None) -> None:
        if entry is None:
            return
        if entry.picture is not None:
            self.dismiss(entry.picture)
        else:
            self._enter_path(entry.path)

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


def _previewed(path: Path) -> tuple[str, bytes]:
    """The size in words and the bytes, none of a file that is too large or would never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file", b""
    data = path.read_bytes() if status.st_size <= _MOST_PREVIEWED else b""
    return readable_size(status.st_size), data


def above(path: str) -> str | None:
    """The folder over the one whose content a path lists; None at the root, and while the
    beginning of a name is typed."""
    folder, slash, name = path.rpartition("/")
    if name:
        return None
    last = folder.rpartition("/")[2]
    if last in {".", ".."} or last.startswith("~") or not slash:
        return f"{path}../"
    return path[: len(folder) - len(last)] if folder else None


def _last(path: str) -> str:
    """The name at the end of a path, with the stroke of a folder: what is before stands above."""
    return path[path.rstrip("/").rfind("/") + 1 :]


def _row(name: str, *, is_picture: bool) -> Content:
    return Content.styled(clean(name), "$accent" if is_picture else "$foreground 70%")
