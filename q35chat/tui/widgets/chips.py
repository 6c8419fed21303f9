"""Pictures waiting to be sent: one chip each, with size, cost and a cross."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from q35chat.chat.values import Attachment
from q35chat.tui.text import one_line, picture_caption


class Chip(Static):
    """One picture; a click takes it away."""

    @dataclass
    class Removed(Message):
        """The cross was clicked."""

        chip: Chip

    def __init__(self, name: str, attachment: Attachment | None = None) -> None:
        super().__init__(markup=False, classes="chip")
        self.label = name
        self.attachment = attachment

    def on_mount(self) -> None:
        """Show what is known."""
        self.ready(self.attachment)

    def ready(self, attachment: Attachment | None) -> None:
        """The picture has been read."""
        self.attachment = attachment
        if attachment is None:
            text = Content.styled(f"{one_line(self.label, 24)}  reading…", "$foreground 60%")
        else:
            text = Content(picture_caption(attachment))
        self.update(Content.assemble(("▣ ", "$accent"), text, ("  ×", "$error bold")))

    def on_click(self, event: events.Click) -> None:
        """Any click on the chip removes it."""
        event.stop()
        self.post_message(self.Removed(self))


class Chips(Horizontal):
    """The row of chips; takes no room while empty."""

    def on_mount(self) -> None:
        """Hidden until there is a picture."""
        self.display = False

    @property
    def chips(self) -> list[Chip]:
        """All chips, oldest first."""
        return list(self.query(Chip))

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The pictures that are ready."""
        return tuple(chip.attachment for chip in self.chips if chip.attachment is not None)

    @property
    def reading(self) -> bool:
        """Whether some picture is still being read."""
        return any(chip.attachment is None for chip in self.chips)

    async def add(self, name: str, attachment: Attachment | None = None) -> Chip:
        """Add a chip, ready or not."""
        chip = Chip(name, attachment)
        self.display = True
        await self.mount(chip)
        return chip

    async def drop(self, chip: Chip) -> None:
        """Remove a chip."""
        await chip.remove()
        self.display = bool(self.chips)

    async def clear(self) -> None:
        """Remove all chips."""
        await self.remove_children()
        self.display = False
