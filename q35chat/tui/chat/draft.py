"""The draft: what is being written, with its pictures, its forecast and the question it changes.

Keeps an unsent draft for every chat, reads pictures in workers once there is a model for them, and
asks what sending would take when the keys rest. Knows the composer and no other widget.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal

from textual.timer import Timer

from q35chat.chat.conversation import Conversation
from q35chat.chat.service import Forecast, Step
from q35chat.chat.text_files import TextFile, split_files, with_files
from q35chat.chat.values import Attachment, Role, Turn
from q35chat.errors import Q35Error
from q35chat.file_kinds import is_picture
from q35chat.settings.templates import typed_template
from q35chat.tui.chat.drafts import Drafts, KeptPicture
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.paste import is_existing_path
from q35chat.tui.chat.session import Session
from q35chat.tui.text import one_line
from q35chat.tui.widgets.chips import Chip, Waiting
from q35chat.tui.widgets.composer import Composer, Contents
from q35chat.tui.widgets.editor import History

NEW: Final = "new"
"""The key of the draft for a chat that holds nothing yet; other chats have their ids."""
FORECAST_DELAY_S: Final = 0.12
Whereabouts = Literal["kept", "back", "past"]
"""Where the question of a failed turn is: in the chat, or there was none; in the composer; only
among the earlier questions."""
ForecastInput = tuple[str, tuple[Attachment, ...], str | None]
"""What is forecast: a text, its pictures, and the question that it would change."""
FileContents = Attachment | TextFile | str
"""What comes of a file: a picture, a text, or why there is none."""
_NOTHING: Final[Contents] = ("", ())


class PendingPictures:
    """Pictures on their way into the draft: which chips are being read, for which conversation,
    and where each picture lies."""

    def __init__(
        self,
        session: Session,
        composer: Composer,
        host: Host,
        on_read: Callable[[bool], Awaitable[None]],
        too_large: Callable[[TextFile], Awaitable[None]],
    ) -> None:
        self._too_large = too_large
        self._session = session
        self._composer = composer
        self._host = host
        self._on_read = on_read
        self._reading: dict[Chip, Conversation] = {}
        self._files: dict[str, Path] = {}
        self._brought_back: dict[Path, int] = {}
        self._missed: list[tuple[int, str]] = []

    def read(self) -> None:
        """Read what is not read yet, where there is a conversation to read it for."""
        conversation = self._session.available
        if conversation is None:
            return
        for chip in self._composer.chips.chips:
            path = chip.picture
            if isinstance(path, Path) and self._reading.get(chip) is not conversation:
                self._reading[chip] = conversation
                self._host.background(
                    "attach",
                    partial(self._attach, conversation, path),
                    partial(self._end, conversation, chip, path),
                )

    def file_of(self, picture: Waiting) -> Path | None:
        """The file of a picture, read or not; None where only the store has it."""
        if isinstance(picture, TextFile):
            path = picture.path
        else:
            path = picture if isinstance(picture, Path) else self._files.get(picture.sha256)
        return None if path is None else path.absolute()

    def bring_back(self, kept: Iterable[KeptPicture]) -> tuple[Path, ...]:
        """The files of a kept draft's pictures, to be read again. What is gone is named."""
        kept = tuple(kept)
        paths = tuple(picture.path for picture in kept if picture.path is not None)
        self._brought_back.update((path, place) for place, path in enumerate(paths))
        self._missed.clear()
        lost = [picture.name for picture in kept if picture.path is None]
        if lost:
            self._host.later(self._miss, *lost)
        return paths

    def _miss(self, *names: str, place: int = -1) -> None:
        """Say which pictures of a draft cannot be brought back, all in one message.

        They are read side by side and end in any order; named they are in the draft's.
        """
        self._missed += [(place, one_line(name, 40)) for name in names]
        self._missed.sort(key=itemgetter(0))
        listed = ", ".join(name for _, name in self._missed)
        one = len(self._missed) == 1
        words = (f"picture {listed} is", "it") if one else (f"pictures {listed} are", "them")
        text = f"The draft's {words[0]} gone; attach {words[1]} again"
        self._host.say(text, "error", about="the draft's pictures")

    def _attach(self, conversation: Conversation, path: Path) -> FileContents:
        """The picture or the text, or why there is none; nothing where a kept draft's file is
        gone."""
        try:
            if is_picture(path) or not os.path.exists(path):  # noqa: PTH110 - never raises
                return conversation.attach(path)
            return conversation.read_file(path)
        except (Q35Error, OSError) as error:
            gone = path in self._brought_back and not os.path.exists(path)  # noqa: PTH110 - never raises
            return "" if gone else str(error)

    async def _end(
        self, conversation: Conversation, chip: Chip, path: Path, found: FileContents
    ) -> None:
        if self._reading.get(chip) is not conversation:
            return
        del self._reading[chip]
        there = chip in self._composer.chips.chips
        place = self._brought_back.pop(path, -1) if there else -1
        if there and isinstance(found, Attachment):
            self._files[found.sha256] = path
            chip.ready(found)
        elif there and isinstance(found, TextFile):
            if found.slots < conversation.model.capacity - conversation.used_slots:
                chip.ready(found)
            else:
                self._composer.chips.drop(chip)
                self._session.queued = False
                await self._too_large(found)
        elif there:
            self._composer.chips.drop(chip)
            self._session.queued = False
            self._host.refresh()
            if isinstance(found, str) and found:
                self._host.say(found, "error")
            else:
                self._miss(path.name, place=place)
        await self._on_read(there)


class Draft:
    """What the composer holds: a new message, or an earlier question as `editing` names it; an
    earlier answer where it `rewrites`.

    `forecast` is the newest there is. Between two runs a draft is kept with where its pictures lie.
    """

    def __init__(
        self,
        session: Session,
        composer: Composer,
        drafts: Drafts,
        host: Host,
        after: Callable[[float, Callable[[], None]], Timer],
        send_queued: Callable[[], Awaitable[None]],
        too_large: Callable[[TextFile], Awaitable[None]],
    ) -> None:
        self._session = session
        self.composer = composer
        self._drafts = drafts
        self._host = host
        self._after = after
        self._send_queued = send_queued
        self.pictures = PendingPictures(session, composer, host, self._picture_read, too_large)
        self._key = ""
        self._kept: dict[str, tuple[Waiting, ...]] = {}
        self._shown = _NOTHING
        self._stash: Contents | None = None
        self._sent: Contents | None = None
        self._sent_for: str | None = None
        self._sent_text = ""
        self._timer: Timer | None = None
        self._forecast_for: ForecastInput | None = None
        self.forecast: Forecast | None = None
        self.editing: str | None = None
        self.rewrites = False
        self._queued_text = ""

    # -- what it holds

    @property
    def sendable(self) -> tuple[str, tuple[Attachment, ...]]:
        """What would be sent now; the text with that of the files."""
        chips = self.composer.chips
        return with_files(chips.files, self.composer.editor.full_text.strip()), chips.attachments

    def is_command(self, text: str) -> bool:
        """Whether it is a command or its beginning: typed, on one line, and no path that exists; or
        one of the user's own, whose text may be pasted and have more lines."""
        if typed_template(text) is not None:
            return True
        if self.composer.editor.pasted or not text.startswith("/") or "\n" in text:
            return False
        return text.strip() == "/" or not is_existing_path(text)

    @property
    def is_typed(self) -> bool:
        """Whether nothing of it was pasted, and it is no question asked before."""
        editor = self.composer.editor
        asked_before = self.editing is not None or editor.past.shows(editor.text)
        return not (editor.pasted or asked_before)

    def changed(self) -> None:
        """The composer holds something else."""
        written_on = self._session.running and self.composer.editor.text != self._queued_text
        if self.composer.empty or written_on:
            self.unqueue()
        self.pictures.read()
        self._remember()
        self.forecast_soon()

    def attach(self, paths: Iterable[Path]) -> None:
        """Add pictures and files."""
        for path in paths:
            self.composer.chips.add(path)
        self.pictures.read()

    def add(self, file: TextFile) -> None:
        """Add a file that is read."""
        self.composer.chips.add(file)
        self.changed()

    async def _picture_read(self, there: bool) -> None:
        if there:
            self.changed()
        await self._send_queued()

    # -- drafts of several chats

    def turn_to(self, key: str) -> None:
        """Keep the draft there is, show that of another chat; the same chat's stays as it is.
        What waits to be sent is the draft there was."""
        if key == self._key:
            return
        self.unqueue()
        self.cancel_edit()
        self._keep()
        self._key, self._sent = key, None
        self._shown = self._draft_of(key)
        if self.composer.contents != self._shown:
            self.composer.put(*self._shown)

    def turn_back(self, conversation: Conversation) -> None:
        """The other chat could not be opened: what was written for it comes behind the draft of
        the one on screen."""
        key, written = _key_of(conversation), self.composer.contents
        if key == self._key:
            return
        untouched = written == self._shown
        self.turn_to(key)
        if not untouched:
            self.composer.put(*_joined(self.composer.contents, written))

    def arrive(self, conversation: Conversation) -> None:
        """A conversation is on screen. What was written before any was there is for this one: it
        comes behind its draft, and then nothing is sent that the user has not seen."""
        questions = _questions(conversation.steps)
        past = History(split_files(step.turn.text)[1] for step in questions)
        self.composer.editor.past = past
        self._host.background("past", self._of_all_chats, past.add_earlier)
        key = _key_of(conversation)
        if self._key or self.composer.empty:
            self.turn_to(key)
            return
        self._key = key
        draft = self._draft_of(key)
        if draft != _NOTHING:
            self.unqueue()
            self.composer.put(*_joined(draft, self.composer.contents))

    def _of_all_chats(self) -> Sequence[str]:
        """The questions of all chats, oldest first; none where they cannot be read."""
        with suppress(Q35Error):
            return self._session.workspace.questions()[::-1]
        return ()

    def carry(self) -> None:
        """Take what is being written along: from now on it is for a new chat."""
        draft = self.composer.contents
        if not self.cancel_edit():
            self.composer.put("")
        self._keep()
        self._key, self._shown = NEW, _NOTHING
        self.composer.put(*draft)

    def forget(self) -> None:
        """Drop what was written for a chat that is no more."""
        self.cancel_edit()
        self.composer.put("")

    def save(self) -> None:
        """Write changed drafts in a worker."""
        if self._drafts.unsaved:
            self._host.background("drafts", self._save)

    def save_now(self) -> None:
        """Write changed drafts at once: the application is about to end, with its workers. A
        question that was being changed is kept behind the draft."""
        self._remember()
        written = self.composer.contents
        edited = [step.turn for step in self._session.steps if step.id == self.editing]
        if self._key and any(written != _written(it) for it in edited):
            self._put(_joined(self._stash or _NOTHING, written))
        if self._drafts.unsaved:
            self._save()

    def forget_chat(self, key: str) -> None:
        """Remove the draft of a chat that was deleted. For a worker thread, like `sweep`."""
        self._kept.pop(key, None)
        with suppress(OSError):
            self._drafts.forget(key)

    def sweep(self, chats: Iterable[str]) -> None:
        """Remove drafts of chats that are gone; `chats` are all there are."""
        with suppress(OSError):
            self._drafts.sweep({NEW, *chats})

    def _save(self) -> None:
        with suppress(OSError):
            self._drafts.save()

    def _draft_of(self, key: str) -> Contents:
        """The draft of a chat; what lay in files is to be read again."""
        text, pictures = self._drafts.get(key), self._kept.pop(key, None)
        if pictures is None:
            pictures = self.pictures.bring_back(self._drafts.pictures(key))
        return text, pictures

    def _keep(self) -> None:
        if self._key:
            self._remember()
            self._kept[self._key] = self.composer.chips.pictures
            self.save()

    def _remember(self) -> None:
        if self._key and self.editing is None:
            self._put(self.composer.contents)

    def _put(self, contents: Contents) -> None:
        text, pictures = contents
        nowhere = [it for it in pictures if isinstance(it, TextFile) and it.path is None]
        text = with_files(nowhere, text) if nowhere else text
        pictures = tuple(it for it in pictures if it not in nowhere)
        kept = (KeptPicture(picture.name, self.pictures.file_of(picture)) for picture in pictures)
        self._drafts.put(self._key, text, tuple(kept))

    # -- sending

    def queue(self) -> None:
        """Send it by itself once everything is there; behind an answer that is being written, only
        as it is now."""
        self._session.queued, self._queued_text = True, self.composer.editor.text

    def unqueue(self) -> None:
        """Send nothing by itself."""
        if self._session.queued:
            self._session.queued = False
            self._host.refresh()

    def take(self, conversation: Conversation) -> tuple[Turn, str | None]:
        """The question to send, and which earlier one it changes; it leaves the composer and is
        remembered until it has arrived."""
        text, attachments = self.sendable
        edited = self.editing
        self.composer.editor.past.add(split_files(text)[1])
        self._sent, self._sent_for, self._sent_text = self.composer.contents, edited, text
        self._stash = None
        self._show_edit(None)
        self._drafts.put(self._key, "")
        self._key = conversation.id
        self.composer.put("")
        return Turn("user", text, attachments), edited

    def give_back(self, conversation: Conversation) -> Whereabouts:
        """A turn failed: unless the question was kept, put it back into an empty composer, where
        it changes the earlier question that it was to change."""
        sent, self._sent = self._sent, None
        if sent is None:
            return "kept"
        self._key = _key_of(conversation)
        questions = _questions(conversation.steps)
        if questions and questions[-1].turn.text == self._sent_text:
            return "kept"
        if not self.composer.empty:
            return "past"
        self.composer.put(*sent)
        ids = [step.id for step in questions]
        if self._sent_for in ids:
            self._show_edit(ids.index(self._sent_for), ids)
            self._host.refresh()
        return "back"

    # -- changing an earlier turn

    def edit_earlier(self, role: Role = "user") -> None:
        """Change the last question, or answer; called again, the one before it."""
        turns = [step for step in self._session.steps if step.turn.role == role]
        if not turns:
            what = "question" if role == "user" else "answer"
            self._host.say(f"There is no {what} to edit yet")
            return
        ids = [step.id for step in turns]
        if self.editing is None:
            self._stash = self.composer.contents
        index = (ids.index(self.editing) - 1) % len(ids) if self.editing in ids else len(ids) - 1
        self.composer.put(*_written(turns[index].turn))
        self._show_edit(index, ids, role)
        self._host.refresh()

    def take_answer(self) -> tuple[str, str] | None:
        """The answer that is changed and its new text, and the draft is back; None, and why is
        said, where it is none."""
        assert self.editing is not None
        answer, text = self.editing, self.composer.editor.full_text.strip()
        if not text or self.composer.chips.chips:
            wrong = "has a text, and no pictures or files" if text else "needs a text"
            self._host.say(f"An answer {wrong}; Esc leaves it as it was", about="the answer")
            return None
        self.cancel_edit()
        return answer, text

    def cancel_edit(self) -> bool:
        """Leave the edit and bring the draft back; whether there was one."""
        if self.editing is None:
            return False
        stash, self._stash = self._stash, None
        self._show_edit(None)
        self.composer.put(*(stash or _NOTHING))
        self._host.refresh()
        return True

    def _show_edit(self, index: int | None, ids: Sequence[str] = (), role: Role = "user") -> None:
        self.editing = None if index is None else ids[index]
        self.rewrites = index is not None and role == "assistant"
        what = "answer" if self.rewrites else "question"
        short = "" if index is None else f"✎ editing {what} {index + 1} of {len(ids)}"
        wordings = (f"{short} · the old one stays", short) if short else ()
        self.composer.show_mode(*wordings, commands=not self.rewrites)

    # -- what sending would take

    @property
    def refusal(self) -> Forecast | None:
        """The forecast, if it belongs to the draft as it is and says that this does not fit."""
        forecast, current = self.forecast, self._forecast_for == self._asked
        return forecast if forecast is not None and current and not forecast.fits else None

    def forecast_soon(self) -> None:
        """Ask again once the keys rest."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._after(FORECAST_DELAY_S, self._ask)

    @property
    def _asked(self) -> ForecastInput:
        return *self.sendable, self.editing

    def _ask(self) -> None:
        self._timer = None
        self.save()
        conversation = self._session.available
        if conversation is None or self._session.running:
            return
        text, attachments = self.sendable
        if self.rewrites or self.is_command(text) or not (text or attachments):
            self.forecast = None
            self._session.meter.idle(conversation)
            (self._host.show if text else self._host.refresh)()  # a remark on a command stays
            return
        asked = self._asked

        def work() -> Forecast | Q35Error:
            try:
                return conversation.forecast(*asked)
            except Q35Error as error:
                return error

        then = partial(self._show_forecast, conversation, asked)
        self._host.background("forecast", work, then, exclusive=True)

    def _show_forecast(
        self, conversation: Conversation, asked: ForecastInput, forecast: Forecast | Q35Error
    ) -> None:
        if isinstance(forecast, Q35Error):
            self._host.remark(str(forecast))
            return
        current = conversation is self._session.available and asked == self._asked
        if current and not self._session.running:
            self._forecast_for, self.forecast = asked, forecast
            self._session.meter.expect(forecast)
            self._host.refresh()


def _key_of(conversation: Conversation) -> str:
    """Which draft belongs to a conversation."""
    return conversation.id if conversation.steps or conversation.summary else NEW


def _written(turn: Turn) -> Contents:
    """A question as it was before it was sent, or the text of an answer."""
    if turn.role == "assistant":
        return turn.text.strip(), ()
    files, text = split_files(turn.text)
    return text, (*turn.attachments, *files)


def _joined(first: Contents, second: Contents) -> Contents:
    text = "\n".join(text for text, _ in (first, second) if text)
    return text, (*first[1], *second[1])


def _questions(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.turn.role == "user"]
