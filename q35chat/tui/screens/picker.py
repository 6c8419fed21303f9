"""Choose a picture or a file: type to filter, see it before it is attached."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from q35chat.file_kinds import is_picture
from q35chat.text import readable_size
from q35chat.tui.chat.completion import Choice, listing
from q35chat.tui.screens.dialog import DIM, SearchDialog
from q35chat.tui.sizes import NARROW, WIDE
from q35chat.tui.text import clean
from q35chat.tui.widgets.picture import Picture

_MOST_PREVIEWED = 32 << 20
_MOST_LISTED = 200
_TEXT_PREVIEWED = 600
_COLUMNS = {WIDE: 42, NARROW: 26, 0: 14}
_ROWS, _AROUND = 16, 7


class _Entry(Option):
    """A line of the list: what it puts into the path, and the file there if it is one."""

    def __init__(self, path: str, file: Path | None = None, name: str = "") -> None:
        style = "$accent" if file is not None else "$foreground 70%"
        super().__init__(Content.styled(clean(name or _last(path)), style))
        self.path = path
        self.file = file


class PickerScreen(SearchDialog[Path | None, tuple[Choice, ...]]):
    """Gives the chosen file."""

    TITLE = "Attach a picture or a file"
    FOOT = "Enter attaches or opens a folder · Tab completes · Esc closes"
    PLACEHOLDER = "Type a path"
    BINDINGS = [Binding("tab", "complete", "Complete", show=False)]  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def body(self) -> ComposeResult:
        """Path above, list and preview below."""
        yield self.field
        with Horizontal(id="picker-body"):
            yield self.options
            with Vertical(id="picker-side"):
                yield Picture(columns=_COLUMNS[0], rows=_ROWS)
                yield Static(id="picker-facts", markup=False)

    def find(self, text: str) -> tuple[Choice, ...]:
        """Folders and files that a path may mean."""
        return listing(text, self._folder, most=_MOST_LISTED)

    def rows(self, found: tuple[Choice, ...]) -> tuple[Sequence[Option], int]:
        """The way up, then a line each, of which the first is chosen."""
        up = above(self.wanted)
        options: list[Option] = [] if up is None else [_Entry(up, name="..")]
        first = min(len(options), len(options) + len(found) - 1)
        options += [_Entry(choice.label, choice.file) for choice in found]
        if not found:
            nothing = Content.styled("no folders, pictures or texts here", DIM)
            options.append(Option(nothing, disabled=True))
            self._look_at(None)
        pictures = any(choice.file is not None for choice in found)
        self.query_one("#picker-side").display = pictures
        return options, first

    def on_resize(self) -> None:
        """The preview has as much room as the list leaves."""
        columns = next(it for width, it in _COLUMNS.items() if self.size.width >= width)
        self.query_one(Picture).limit(columns, max(1, min(_ROWS, self.size.height - _AROUND)))

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if isinstance(event.option, _Entry):
            self._look_at(event.option.file)

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
        if self._chosen is not None and self._chosen.file == path:
            self.query_one(Picture).show(data)
            self.query_one("#picker-facts", Static).update(facts)

    @property
    def _chosen(self) -> _Entry | None:
        option = self.options.highlighted_option
        return option if isinstance(option, _Entry) else None

    def action_complete(self) -> None:
        """Take the chosen name into the path."""
        self.when_listed(self._complete)

    def _complete(self) -> None:
        if self._chosen is not None:
            self.fill(self._chosen.path)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.when_listed(lambda: self._take(self._chosen))

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._take(event.option)

    def _take(self, entry: Option | None) -> None:
        if isinstance(entry, _Entry):
            if entry.file is not None:
                self.dismiss(entry.file)
            else:
                self.fill(entry.path)


def _previewed(path: Path) -> tuple[str, bytes]:
    """The size in words, of a text its beginning, and the bytes of a picture, none of one that is
    too large or would never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file", b""
    size = readable_size(status.st_size)
    if not is_picture(path):
        with path.open("rb") as file:
            text = file.read(_TEXT_PREVIEWED).decode("utf-8", "ignore")
        return (f"{size}\n\n{clean(text)}" if "\0" not in text else size), b""
    data = path.read_bytes() if status.st_size <= _MOST_PREVIEWED else b""
    return size, data


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
