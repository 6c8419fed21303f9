"""Pictures on their way into a message: each is read in a worker, once there is a model for it.

The chips of the composer hold the files until then; knows nothing of drafts and of sending but
that both go on when a picture is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat.chat.service import Conversation
from q35chat.chat.values import Attachment
from q35chat.errors import Q35Error
from q35chat.tui.text import one_line
from q35chat.tui.widgets.chips import Chip, Waiting

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen


class Attaching:
    """Which chips are being read, for which conversation, and where each picture lies."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._reading: dict[Chip, Conversation] = {}
        self._files: dict[str, Path] = {}
        self._brought_back: dict[Path, int] = {}
        self._missed: list[tuple[int, str]] = []

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

    def where(self, picture: Waiting) -> Path | None:
        """The file of a picture, read or not; None where only the store has it."""
        path = picture if isinstance(picture, Path) else self._files.get(picture.sha256)
        return None if path is None else path.absolute()

    def bring_back(self, paths: Iterable[Path]) -> None:
        """A kept draft with these is on its way: one that is gone is said to be."""
        self._brought_back.update((path, place) for place, path in enumerate(paths))
        self._missed.clear()

    def miss(self, *names: str, place: int = -1) -> None:
        """Say which pictures of a draft cannot be brought back, all in one message.

        They are read side by side and end in any order; named they are in the draft's.
        """
        self._missed += [(place, one_line(name, 40)) for name in names]
        self._missed.sort(key=itemgetter(0))
        listed = ", ".join(name for _, name in self._missed)
        one = len(self._missed) == 1
        words = (f"picture {listed} is", "it") if one else (f"pictures {listed} are", "them")
        text = f"The draft's {words[0]} gone; attach {words[1]} again"
        self._screen.say(text, error=True, about="the draft's pictures")

    def _read(self, conversation: Conversation, chip: Chip, path: Path) -> None:
        found: Attachment | str
        try:
            found = conversation.attach(path)
        except Q35Error as error:
            gone = path in self._brought_back and not os.path.exists(path)  # noqa: PTH110 - never raises
            found = "" if gone else str(error)
        self._screen.call_later(self._end, conversation, chip, path, found)

    async def _end(
        self, conversation: Conversation, chip: Chip, path: Path, found: Attachment | str
    ) -> None:
        if self._reading.get(chip) is not conversation:
            return
        del self._reading[chip]
        chips = self._screen.composer.chips
        if chip in chips.chips:
            self._take(chip, path, found)
            self._screen.changed()
        await self._screen.sending.try_queued()

    def _take(self, chip: Chip, path: Path, found: Attachment | str) -> None:
        place = self._brought_back.pop(path, -1)
        if isinstance(found, Attachment):
            self._files[found.sha256] = path
            chip.ready(found)
            return
        self._screen.composer.chips.drop(chip)
        self._screen.sending.forget()
        if found:
            self._screen.say(found, error=True)
        else:
            self.miss(path.name, place=place)
