"""What is being written: drafts per conversation, and changing an earlier question.

Owns whether the composer holds a new message or an edit; knows the screen's composer only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from q35chat.chat.service import Conversation, Step
from q35chat.tui.chat.drafts import Drafts, KeptPicture
from q35chat.tui.chat.history import History
from q35chat.tui.widgets.chips import Waiting
from q35chat.tui.widgets.composer import Draft

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen

NEW: Final = "new"
"""The key of the draft for a chat that holds nothing yet; other chats have their ids."""
Whereabouts = Literal["kept", "back", "past"]
"""Where the question of a failed turn is: in the chat, or there was none; in the composer; only
among the earlier questions."""
_NOTHING: Final[Draft] = ("", ())


def draft_key(conversation: Conversation) -> str:
    """Which draft belongs to a conversation."""
    return conversation.id if conversation.steps or conversation.summary else NEW


class Drafting:
    """Keeps every unsent text with its pictures; between two runs, with where they lie."""

    def __init__(self, screen: ChatScreen, drafts: Drafts) -> None:
        self._screen = screen
        self._drafts = drafts
        self._key = ""
        self._kept: dict[str, tuple[Waiting, ...]] = {}
        self._shown = _NOTHING
        self._stash: Draft | None = None
        self._sent: Draft | None = None
        self._sent_for: str | None = None
        self.editing: str | None = None

    def turn_to(self, key: str) -> None:
        """Keep the draft there is, show that of another chat; the same chat's stays as it is.
        What waits to be sent is the draft there was."""
        if key == self._key:
            return
        self._screen.sending.forget()
        self.cancel_edit()
        self._keep()
        self._key, self._sent = key, None
        self._shown = self._draft(key)
        if self._screen.composer.draft != self._shown:
            self._screen.composer.put(*self._shown)

    def turn_back(self, conversation: Conversation) -> None:
        """The other chat could not be opened: what was written for it comes behind the draft of
        the one on screen."""
        key, written = draft_key(conversation), self._screen.composer.draft
        if key == self._key:
            return
        untouched = written == self._shown
        self.turn_to(key)
        if not untouched:
            self._screen.composer.put(*_joined(self._screen.composer.draft, written))

    def arrive(self, conversation: Conversation) -> None:
        """A conversation is on screen. What was written before any was there is for this one: it
        comes behind its draft, and then nothing is sent that the user has not seen."""
        composer, questions = self._screen.composer, _questions(conversation.steps)
        composer.editor.past = History(step.turn.text for step in questions)
        key = draft_key(conversation)
        if self._key or composer.empty:
            self.turn_to(key)
            return
        self._key = key
        draft = self._draft(key)
        if draft != _NOTHING:
            self._screen.sending.forget()
            composer.put(*_joined(draft, composer.draft))

    def _draft(self, key: str) -> Draft:
        """The draft of a chat; what lay in files is to be read again."""
        text, pictures = self._drafts.get(key), self._kept.pop(key, None)
        if pictures is not None:
            return text, pictures
        kept = self._drafts.pictures(key)
        paths = tuple(picture.path for picture in kept if picture.path is not None)
        self._screen.attaching.bring_back(paths)
        lost = [picture.name for picture in kept if picture.path is None]
        if lost:
            self._screen.call_later(self._screen.attaching.miss, *lost)
        return text, paths

    def carry(self) -> None:
        """Take what is being written along: from now on it is for a new chat."""
        draft = self._screen.composer.draft
        if not self.cancel_edit():
            self._screen.composer.put("")
        self._keep()
        self._key, self._shown = NEW, _NOTHING
        self._screen.composer.put(*draft)

    def _keep(self) -> None:
        if self._key:
            self.changed()
            self._kept[self._key] = self._screen.composer.chips.pictures
            self.save()

    def changed(self) -> None:
        """The composer holds something else."""
        if self._key and self.editing is None:
            self._put(self._screen.composer.draft)

    def _put(self, draft: Draft) -> None:
        text, pictures = draft
        where = self._screen.attaching.where
        kept = tuple(KeptPicture(picture.name, where(picture)) for picture in pictures)
        self._drafts.put(self._key, text, kept)

    def save(self) -> None:
        """Write changed drafts in a worker."""
        if self._drafts.unsaved:
            self._screen.run_worker(
                self._drafts.save, thread=True, group="drafts", exit_on_error=False
            )

    def save_now(self) -> None:
        """Write changed drafts at once: the application is about to end, with its workers. A
        question that was being changed is kept behind the draft."""
        if self._key and self._edited:
            self._put(_joined(self._stash or _NOTHING, self._screen.composer.draft))
        if self._drafts.unsaved:
            with suppress(OSError):
                self._drafts.save()

    @property
    def _edited(self) -> bool:
        """Whether an earlier question stands in the composer, changed."""
        open_now = [step.turn for step in self._screen.steps if step.id == self.editing]
        written = self._screen.composer.draft
        return any(written != (turn.text, tuple(turn.attachments)) for turn in open_now)

    def sent(self) -> None:
        """The composer's content is on its way; remember it until it has arrived."""
        composer = self._screen.composer
        self._sent, self._sent_for = composer.draft, self.editing
        self.editing, self._stash = None, None
        composer.show_mode("")
        conversation = self._screen.conversation
        if conversation is not None:
            self._drafts.put(self._key, "")
            self._key = conversation.id

    def give_back(self, conversation: Conversation) -> Whereabouts:
        """A turn failed: unless the question was kept, put it back into an empty composer, where
        it changes the earlier question that it was to change."""
        sent, self._sent = self._sent, None
        if sent is None:
            return "kept"
        self._key = draft_key(conversation)
        questions = _questions(conversation.steps)
        if questions and questions[-1].turn.text == sent[0].strip():
            return "kept"
        if not self._screen.composer.empty:
            return "past"
        self._screen.composer.put(*sent)
        ids = [step.id for step in questions]
        if self._sent_for in ids:
            self._show_edit(ids, ids.index(self._sent_for))
        return "back"

    def edit_earlier(self) -> None:
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
            self._stash = composer.draft
        composer.put(questions[index].turn.text, questions[index].turn.attachments)
        self._show_edit(ids, index)

    def _show_edit(self, ids: Sequence[str], index: int) -> None:
        self.editing = ids[index]
        self._screen.composer.show_mode(
            f"✎ editing question {index + 1} of {len(ids)} · the old one stays as a version"
        )
        self._screen.status.refresh()

    def cancel_edit(self) -> bool:
        """Leave the edit and bring the draft back; whether there was one."""
        if self.editing is None:
            return False
        self.editing = None
        stash, self._stash = self._stash, None
        self._screen.composer.show_mode("")
        self._screen.composer.put(*(stash or _NOTHING))
        self._screen.status.refresh()
        return True


def _joined(first: Draft, second: Draft) -> Draft:
    text = "\n".join(text for text, _ in (first, second) if text)
    return text, (*first[1], *second[1])


def _questions(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.turn.role == "user"]
