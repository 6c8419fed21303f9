"""Pictures waiting to be sent: one chip each, with size, cost and a cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from q35chat.chat.values import Attachment
from q35chat.tui.text import one_line, picture_caption

Waiting = Attachment | Path
"""A picture that waits to be sent: as it was read, or the file that is still to be read."""


class Chip(Static):
    """One picture; a click takes it away."""

    @dataclass
    class Removed(Message):
        """The cross was clicked."""

        chip: Chip

    def __init__(self, picture: Waiting) -> None:
        super().__init__(markup=False, classes="chip")
        self.picture = picture

    @property
    def attachment(self) -> Attachment | None:
        """The picture, once it has been read."""
        return self.picture if isinstance(self.picture, Attachment) else None

    def on_mount(self) -> None:
        """Show what is known."""
        self._show()

    def ready(self, attachment: Attachment) -> None:
        """The picture has been read."""
        self.picture = attachment
        self._show()

    def _show(self) -> None:
        if isinstance(self.picture, Path):
            name = one_line(self.picture.name, 24)
            text = Content.styled(f"{name}  reading…", "$foreground 60%")
        else:
            text = Content(picture_caption(self.picture))
        self.update(Content.assemble(("▣ ", "$accent"), text, ("  ×", "$error bold")))

    def on_click(self, event: events.Click) -> None:
        """Any click on the chip removes it."""
        event.stop()
        self.post_message(self.Removed(self))


class Chips(Horizontal):
    """The row of chips; takes no room while empty. What changes here holds at once: the screen
    follows by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._chips: list[Chip] = []

    def on_mount(self) -> None:
        """Hidden until there is a picture."""
        self.display = False

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
    def reading(self) -> bool:
        """Whether some picture is still being read."""
        return any(chip.attachment is None for chip in self._chips)

    def add(self, picture: Waiting) -> None:
        """Add a chip."""
        chip = Chip(picture)
        self._chips.append(chip)
        self.display = True
        self.mount(chip)

    def drop(self, chip: Chip) -> None:
        """Remove a chip, if it is still there."""
        if chip in self._chips:
            self._chips.remove(chip)
            chip.remove()
            self.display = bool(self._chips)

    def put(self, pictures: Sequence[Waiting]) -> None:
        """Replace all chips."""
        for chip in self.chips:
            self.drop(chip)
        for picture in pictures:
            self.add(picture)
