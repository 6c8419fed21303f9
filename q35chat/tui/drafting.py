"""What is being written: drafts per conversation, and changing an earlier question.

Owns whether the composer holds a new message or an edit; knows the screen's composer only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from q35chat.chat.service import Conversation, Step
from q35chat.chat.values import Attachment
from q35chat.tui.history import History
from q35chat.tui.preferences import Drafts

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen

Draft = tuple[str, tuple[Attachment, ...]]


class Drafting:
    """Keeps every unsent text."""

    def __init__(self, screen: ChatScreen, drafts: Drafts) -> None:
        self._screen = screen
        self._drafts = drafts
        self._key = ""
        self._kept: dict[str, tuple[Attachment, ...]] = {}
        self._stash: Draft | None = None
        self._sent: Draft | None = None
        self._carried: Draft | None = None
        self._dirty = False
        self.editing: str | None = None

    async def enter(self, conversation: Conversation) -> None:
        """Show a conversation's draft; what was typed while it opened is kept instead."""
        self._key = conversation.id if conversation.steps else "new"
        questions = _questions(conversation.steps)
        self._screen.composer.editor.past = History(step.turn.text for step in questions)
        if self._carried is not None:
            carried, self._carried = self._carried, None
            await self._screen.composer.put(*carried)
            return
        draft = self._drafts.get(self._key)
        if self._screen.composer.empty and draft:
            await self._screen.composer.put(draft, self._kept.get(self._key, ()))

    async def leave(self) -> None:
        """Keep the draft of the conversation that is left."""
        await self.cancel_edit()
        if self._key:
            self.changed()
            self._kept[self._key] = self._screen.composer.chips.attachments
            self.save()
            await self._screen.composer.put("")

    async def carry(self) -> None:
        """Take what is being written along into the conversation that is opened next."""
        composer = self._screen.composer
        draft = (composer.editor.full_text, composer.chips.attachments)
        await self.cancel_edit()
        await composer.put("")
        self.changed()
        self._carried = draft

    def changed(self) -> None:
        """The composer holds something else."""
        if self._key and self.editing is None:
            text = self._screen.composer.editor.full_text
            self._dirty = self._drafts.put(self._key, text) or self._dirty

    def save(self) -> None:
        """Write changed drafts in a worker."""
        if self._dirty:
            self._dirty = False
            self._screen.run_worker(
                self._drafts.save, thread=True, group="drafts", exit_on_error=False
            )

    def save_now(self) -> None:
        """Write changed drafts at once: the application is about to end, with its workers."""
        if self._dirty:
            self._dirty = False
            with suppress(OSError):
                self._drafts.save()

    def sent(self) -> None:
        """The composer's content is on its way; remember it until it has arrived."""
        composer = self._screen.composer
        self._sent = (composer.editor.full_text, composer.chips.attachments)
        self.editing, self._stash = None, None
        composer.show_mode("")
        conversation = self._screen.conversation
        if conversation is not None:
            self._drafts.put(self._key, "")
            self._key, self._dirty = conversation.id, True

    async def give_back(self, conversation: Conversation) -> None:
        """A turn failed: unless the question was kept, put it back into an empty composer."""
        sent, self._sent = self._sent, None
        questions = _questions(conversation.steps)
        kept = bool(questions) and sent is not None and questions[-1].turn.text == sent[0].strip()
        if sent is not None and not kept and self._screen.composer.empty:
            await self._screen.composer.put(*sent)

    async def edit_earlier(self) -> None:
        """Change the last question; called again, the one before it."""
        questions = _questions(self._screen.steps)
        if not questions:
            self._screen.say("There is no question to edit yet")
            return
        composer = self._screen.composer
        ids = [step.id for step in questions]
        if self.editing in ids:
            index = (ids.index(self.editing) - 1) % len(ids)
        else:
            index = len(ids) - 1
            self._stash = (composer.editor.full_text, composer.chips.attachments)
        chosen = questions[index]
        self.editing = chosen.id
        await composer.put(chosen.turn.text, chosen.turn.attachments)
        composer.show_mode(
            f"✎ editing question {index + 1} of {len(ids)} · the old one stays as a branch"
        )
        self._screen.status.refresh()

    async def cancel_edit(self) -> bool:
        """Leave the edit and bring the draft back; whether there was one."""
        if self.editing is None:
            return False
        self.editing = None
        stash, self._stash = self._stash, None
        self._screen.composer.show_mode("")
        await self._screen.composer.put(*(stash or ("", ())))
        self._screen.status.refresh()
        return True


def _questions(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.turn.role == "user"]
