"""Pictures and files waiting to be sent: one chip each, with size, cost and a cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from q35chat.chat.text_files import TextFile
from q35chat.chat.values import Attachment
from q35chat.tui.text import LONGEST_NAME, file_caption, one_line, picture_caption
from q35chat.tui.widgets.containers import Flow

Waiting = Attachment | TextFile | Path
"""What waits to be sent: a picture or a text as it was read, or a file that is still to be read."""

ROWS: Final = 3
_AROUND, _SHORTEST_NAME = 3, 6
_MORE: Final = len("+99 more")


class Chip(Static):
    """One picture or file; a click takes it away."""

    @dataclass
    class Removed(Message):
        """The cross was clicked."""

        chip: Chip

    def __init__(self, picture: Waiting) -> None:
        super().__init__(markup=False, classes="chip")
        self.picture = picture
        self._longest = LONGEST_NAME
        self.update(self._words)

    @property
    def attachment(self) -> Attachment | None:
        """The picture, once it has been read."""
        return self.picture if isinstance(self.picture, Attachment) else None

    @property
    def columns(self) -> int:
        """How much of a row it takes, with the space after it."""
        return self._words.cell_length + _AROUND

    def shorten(self, width: int) -> None:
        """Show as much of the name as leaves room in a row for what stands behind it."""
        before, self._longest = self._words, LONGEST_NAME
        over = self.columns - 1 - width
        if over > 0:
            shown = min(LONGEST_NAME, cell_len(self.picture.name))
            self._longest = max(_SHORTEST_NAME, shown - over)
        if self._words != before:
            self.update(self._words)

    def ready(self, found: Attachment | TextFile) -> None:
        """The file has been read."""
        self.picture = found
        self.update(self._words)
        if isinstance(self.parent, Chips):
            self.parent.fit()

    @property
    def _words(self) -> Content:
        if isinstance(self.picture, Path):
            name = one_line(self.picture.name, self._longest)
            text = Content.styled(f"{name}  reading…", "$foreground 60%")
        elif isinstance(self.picture, TextFile):
            text = Content(file_caption(self.picture, self._longest))
        else:
            text = Content(picture_caption(self.picture, self._longest))
        sign = "▤ " if isinstance(self.picture, TextFile) else "▣ "
        return Content.assemble((sign, "$accent"), text, ("  ×", "$error bold"))

    def on_click(self, event: events.Click) -> None:
        """Any click on the chip removes it."""
        event.stop()
        self.post_message(self.Removed(self))


def fitting_chips(columns: Sequence[int], width: int, rows: int, more: int) -> int:
    """How many chips of these widths have room in so many rows; where not all have, `more` columns
    are left for the words that say so."""
    row = used = 0
    fitting = 0
    for place, wide in enumerate(columns):
        if used and used + wide - 1 > width:
            row, used = row + 1, 0
        if row == rows:
            return fitting
        used += wide
        if row + 1 < rows or used + more <= width:
            fitting = place + 1
    return len(columns)


class Chips(Flow):
    """The chips, in as many rows as they need up to `ROWS`; then how many more there are. Takes no
    room while empty. What changes here holds at once: the screen follows by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._chips: list[Chip] = []
        self._more = Static(markup=False, classes="more-chips")
        self._more.display = False

    def compose(self) -> ComposeResult:
        """What stands behind the chips."""
        yield self._more

    def on_mount(self) -> None:
        """Hidden until there is a picture."""
        self.display = bool(self._chips)

    def on_resize(self) -> None:
        """Another width has room for others."""
        self.fit()

    def fit(self) -> None:
        """Show the chips that have room."""
        width = self.size.width
        if not width:
            return
        for chip in self._chips:
            chip.shorten(width)
        columns = [chip.columns for chip in self._chips]
        fitting = max(1, fitting_chips(columns, width, ROWS, _MORE))
        for place, chip in enumerate(self._chips):
            chip.display = place < fitting
        left = len(columns) - fitting
        self._more.display = left > 0
        self._more.update(f"+{left} more")

    @property
    def chips(self) -> Sequence[Chip]:
        """All chips, oldest first."""
        return tuple(self._chips)

    @property
    def pictures(self) -> tuple[Waiting, ...]:
        """All pictures, read or not."""
        return tuple(chip.picture for chip in self._chips)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The pictures that are ready."""
        return tuple(chip.attachment for chip in self._chips if chip.attachment is not None)

    @property
    def files(self) -> tuple[TextFile, ...]:
        """The files whose text is there."""
        return tuple(chip.picture for chip in self._chips if isinstance(chip.picture, TextFile))

    @property
    def reading(self) -> bool:
        """Whether something is still being read."""
        return any(isinstance(chip.picture, Path) for chip in self._chips)

    def add(self, picture: Waiting) -> None:
        """Add a chip."""
        chip = Chip(picture)
        self._chips.append(chip)
        self.display = True
        self.mount(chip, before=self._more)
        self.fit()

    def drop(self, chip: Chip) -> None:
        """Remove a chip, if it is still there."""
        if chip in self._chips:
            self._chips.remove(chip)
            chip.remove()
            self.display = bool(self._chips)
            self.fit()

    def put(self, pictures: Sequence[Waiting]) -> None:
        """Replace all chips."""
        for chip in self.chips:
            self.drop(chip)
        for picture in pictures:
            self.add(picture)
