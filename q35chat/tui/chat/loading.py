"""What is on its way to the screen: the model that answers, or another chat with the same model.

Works in a thread. While it does, the conversation on screen stays and nothing is sent; what is
written while a chat is opened is for that chat. What does not come leaves a panel with ways on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat.chat.conversation import Conversation
from q35chat.chat.service import ModelEntry
from q35chat.errors import Q35Error
from q35chat.tui import garbage
from q35chat.tui.chat.draft import NEW, Draft
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.session import Session
from q35chat.tui.text import cause, one_line
from q35chat.tui.widgets.panel import Panel, Way
from q35chat.tui.widgets.transcript import Transcript
from q35chat.tui.workers import attempt

if TYPE_CHECKING:
    from q35chat.tui.exporting import MadeBundle

Failed = Callable[[Exception], Awaitable[None]]


@dataclass(eq=False)
class Loader:
    """Brings a model, a chat or both; the session says what is on its way."""

    session: Session
    draft: Draft
    transcript: Transcript
    panel: Panel
    host: Host
    send_queued: Callable[[], Awaitable[None]]
    _told: str = field(default="", init=False)
    _switched: bool = field(default=False, init=False)

    def load(self, stored: str | None) -> None:
        """Load the model, then open a stored conversation or a new one."""

        def work() -> Conversation:
            _warm_up()
            self.session.workspace.load()
            return self._stored(stored)

        again = Way("Try again", partial(self.load, stored))
        fresh = Way("Start a new chat instead", partial(self.load, None))
        setup = Way("Get a real model", partial(self.host.run, "setup"))
        ways = (again, fresh, setup) if stored else (again, setup)
        self._load(work, "The model is not ready", ways, asking=self.session.workspace.remote)

    def restart(self) -> None:
        """Load the model again, whatever became of it, under the conversation on screen."""
        again = Way("Try again", self.restart)
        export = Way("Export to Markdown", partial(self.host.run, "export"))
        title = "The model did not start again; the chat is safe"
        work = partial(self._over, self.session.workspace.restart)
        model = self.session.model
        asking = model is not None and bool(model.remote)
        self._load(work, title, (again, export), asking=asking)

    def use(self, made: MadeBundle) -> None:
        """Let the model of a bundle answer from now on; where it cannot, the present one stays."""
        self._use(made.folder, made.model, f" · next time: {made.command}")

    def switch(self, entry: ModelEntry) -> None:
        """The same with a bundle that is there already, or a server."""
        self._use(entry.folder, entry.name, asking=entry.remote)

    def _use(self, folder: Path, name: str, advice: str = "", *, asking: bool = False) -> None:
        work = partial(self._over, partial(self.session.workspace.use, folder))
        title = f"{name} could not be opened; the present model stays"
        again = Way("Try again", partial(self._use, folder, name, advice, asking=asking))
        then = f"{name} answers from now on{advice}"
        self._load(work, title, (again,), then, stays=True, asking=asking)

    def _stored(self, stored: str | None) -> Conversation:
        """A stored conversation, or a new one. For a worker thread, like `_over`."""
        workspace = self.session.workspace
        return workspace.open(stored) if stored else workspace.new()

    def _over(self, load: Callable[[], None]) -> Conversation:
        """The conversation on screen over the model that `load` brings."""
        workspace, conversation = self.session.workspace, self.session.conversation
        load()
        return workspace.reopen(conversation) if conversation else workspace.new()

    def open(self, stored: str | None, turn: str = "") -> None:
        """Open a stored conversation, with this turn of it in sight, or a new one; where it does
        not come, the present one stays."""

        def work() -> Conversation:
            conversation = self._stored(stored)
            if turn:
                conversation.choose_turn(turn)
            return conversation

        async def failed(error: Exception) -> None:
            self.host.say(cause(error), "error")
            self.draft.unqueue()
            if self.session.conversation is not None:
                self.draft.turn_back(self.session.conversation)
            await self._go_on()

        def begin() -> None:
            self.draft.turn_to(stored or NEW)
            self._begin(work, failed, turn=turn)

        self.session.load(opening=True)
        self.draft.unqueue()
        self.draft.forecast = None
        self.host.refresh()
        # after the keys that were pressed before: those are for the chat that is left
        self.draft.composer.editor.call_later(begin)

    async def show(self, conversation: Conversation, turn: str = "") -> None:
        """Put a conversation that is there on the screen, with this turn of it in sight or the
        last one, then go on with what waits for it."""
        self.session.load(opening=True)
        self.panel.dismiss()
        self.session.show(conversation)
        self.transcript.model_name = conversation.model.name
        self.draft.arrive(conversation)
        self.transcript.begin_with(conversation.summary)
        left = bool(self.transcript.views)
        await self.transcript.show(conversation.steps)
        if turn:
            await self.transcript.reveal(turn)
        if left:
            self.host.later(garbage.chat_left)
        self.session.loaded()
        await self._go_on()

    def count_earlier(self) -> None:
        """Count the chats there are to come back to, where the welcome says so."""
        if self.session.steps:
            return

        def count() -> int:
            with suppress(Q35Error):
                workspace = self.session.workspace
                chats = [one.id for one in workspace.listed()]
                if not workspace.message:  # a damaged file may not name them all
                    self.draft.sweep(chats)
                return len(chats)
            return self.session.earlier

        def show(earlier: int) -> None:
            self.session.earlier = earlier
            self.host.refresh()

        self.host.background("earlier", count, show)

    async def _go_on(self) -> None:
        self.draft.pictures.read()
        self.session.warn(panel=self.panel.display)
        self.host.refresh()
        self._tell_of_the_model()
        message = self.session.workspace.message
        if message and message != self._told:
            self._told = message
            self.host.say(message, "warning")
        self.count_earlier()
        self.draft.forecast_soon()
        await self.send_queued()

    def _tell_of_the_model(self) -> None:
        """Say who wrote the last answer, where that was another model."""
        steps, model = self.session.steps, self.session.model
        before = steps[-1].model if steps else ""
        if model is not None and before and before != model.name and not self._switched:
            names = one_line(before, 40), one_line(model.name, 40)
            self.host.say(f"{names[0]} wrote the last answer; {names[1]} writes the next")
        self._switched = False

    def _load(
        self,
        work: Callable[[], Conversation],
        title: str,
        ways: tuple[Way, ...],
        then: str = "",
        *,
        stays: bool = False,
        asking: bool,
    ) -> None:
        """Bring a model, then say `then`; or a panel that offers the ways. `stays`: the present
        model goes on where the other does not come. `asking`: it is a server's."""

        async def failed(error: Exception) -> None:
            if stays:
                self.draft.unqueue()
            await self.panel.show("error", title, cause(error), ways)
            if stays:
                self.draft.pictures.read()

        self.panel.dismiss()
        self.session.load(asking=asking)
        self.host.refresh()
        self._begin(work, failed, then)

    def _begin(
        self, work: Callable[[], Conversation], failed: Failed, then: str = "", turn: str = ""
    ) -> None:
        ended = partial(self._end, failed, then, turn)
        self.host.background("load", partial(attempt, work), ended, exclusive=True)

    async def _end(
        self, failed: Failed, then: str, turn: str, found: Conversation | Exception
    ) -> None:
        if isinstance(found, Exception):
            self.session.loaded()
            self.host.refresh()
            await failed(found)
            self.host.refresh()
            return
        self._switched = bool(then)
        await self.show(found, turn)
        if then:
            self.host.say(then)


def _warm_up() -> None:
    """Load what the turns need; the first paint did not wait for it."""
    from q35chat.tui.widgets import turns  # noqa: F401, PLC0415
    from q35chat.tui.widgets.answer import warm_up  # noqa: PLC0415

    warm_up()
