"""Pictures on their way into a message: each is read in a worker, once there is a model for it.

The chips of the composer hold the files until then; knows nothing of drafts and of sending but
that both go on when a picture is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat.chat.service import Conversation
from q35chat.chat.values import Attachment
from q35chat.errors import Q35Error
from q35chat.tui.widgets.chips import Chip

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen


class Attaching:
    """Which chips are being read, and for which conversation."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._reading: dict[Chip, Conversation] = {}

    def add(self, paths: Iterable[Path]) -> None:
        """Add pictures."""
        for path in paths:
            self._screen.composer.chips.add(path)
        self.begin()

    def begin(self) -> None:
        """Read what is not read yet, where there is a conversation to read it for."""
        conversation = self._screen.ready
        if conversation is None:
            return
        for chip in self._screen.composer.chips.chips:
            path = chip.picture
            if isinstance(path, Path) and self._reading.get(chip) is not conversation:
                self._reading[chip] = conversation
                read = partial(self._read, conversation, chip, path)
                self._screen.run_worker(read, thread=True, group="attach")

    def _read(self, conversation: Conversation, chip: Chip, path: Path) -> None:
        found: Attachment | str
        try:
            found = conversation.attach(path)
        except Q35Error as error:
            found = str(error)
        self._screen.call_later(self._end, conversation, chip, found)

    async def _end(self, conversation: Conversation, chip: Chip, found: Attachment | str) -> None:
        if self._reading.get(chip) is not conversation:
            return
        del self._reading[chip]
        chips = self._screen.composer.chips
        if chip in chips.chips:
            self._take(chip, found)
            self._screen.changed()
        await self._screen.sending.try_queued()

    def _take(self, chip: Chip, found: Attachment | str) -> None:
        if isinstance(found, Attachment):
            chip.ready(found)
            return
        self._screen.composer.chips.drop(chip)
        self._screen.sending.forget()
        self._screen.say(found, error=True)
