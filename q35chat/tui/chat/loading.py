"""What is on its way to the screen: the model that answers, or another chat with the same model.

Works in a thread. While it does, the conversation on screen stays and nothing is sent; what is
written while a chat is opened is for that chat. What does not come leaves a panel with ways on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from q35chat.chat.service import Conversation, Workspace
from q35chat.errors import Q35Error
from q35chat.tui.chat.draft import NEW, Draft
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.session import Session
from q35chat.tui.text import cause
from q35chat.tui.widgets.panel import Panel, Way
from q35chat.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from q35chat.tui.exporting import Made

Failed = Callable[[Exception], Awaitable[None]]


class Loader:
    """Brings a model, a chat or both; the session says what is on its way."""

    def __init__(
        self,
        session: Session,
        draft: Draft,
        transcript: Transcript,
        panel: Panel,
        host: Host,
        send_queued: Callable[[], Awaitable[None]],
    ) -> None:
        self._session = session
        self._draft = draft
        self._transcript = transcript
        self._panel = panel
        self._host = host
        self._send_queued = send_queued
        self._told = ""

    def load(self, stored: str | None) -> None:
        """Load the model, then open a stored conversation or a new one."""
        workspace = self._session.workspace

        def work() -> Conversation:
            _warm_up()
            workspace.load()
            return workspace.open(stored) if stored else workspace.new()

        async def failed(error: Exception) -> None:
            again = Way("Try again", partial(self.load, stored))
            fresh = Way("Start a new chat instead", partial(self.load, None))
            setup = Way("Get a real model", partial(self._host.run, "setup"))
            ways = (again, fresh, setup) if stored else (again, setup)
            await self._panel.show("error", "The model is not ready", cause(error), ways)

        self._load(work, failed)

    def restart(self) -> None:
        """Load the model again, whatever became of it, under the conversation on screen."""
        workspace, conversation = self._session.workspace, self._session.conversation

        def work() -> Conversation:
            workspace.restart()
            return workspace.reopen(conversation) if conversation else workspace.new()

        async def failed(error: Exception) -> None:
            title = "The model did not start again; the chat is safe"
            export = Way("Export to Markdown", partial(self._host.run, "export"))
            ways = (Way("Try again", self.restart), export)
            await self._panel.show("error", title, cause(error), ways)

        self._load(work, failed)

    def use(self, made: Made) -> None:
        """Let the model of a bundle answer from now on; where it cannot, the present one stays."""
        workspace, conversation = self._session.workspace, self._session.conversation

        def work() -> Conversation:
            workspace.use(made.folder)
            return workspace.reopen(conversation) if conversation else workspace.new()

        async def failed(error: Exception) -> None:
            self._draft.unqueue()
            title = f"{made.model} could not be opened; the present model stays"
            again = Way("Try again", partial(self.use, made))
            await self._panel.show("error", title, cause(error), (again,))
            self._draft.read_pictures()

        self._load(work, failed, f"{made.model} answers from now on · next time: {made.command}")

    def open(self, stored: str | None) -> None:
        """Open a stored conversation, or a new one; where it does not come, the present one
        stays."""
        session, workspace = self._session, self._session.workspace

        def work() -> Conversation:
            return workspace.open(stored) if stored else workspace.new()

        async def failed(error: Exception) -> None:
            self._host.say(cause(error), "error")
            self._draft.unqueue()
            if session.conversation is not None:
                self._draft.turn_back(session.conversation)
            await self._go_on()

        session.load(opening=True)
        self._draft.unqueue()
        self._draft.forget_forecast()
        self._host.refresh()
        self._draft.turn_to_after_keys(stored or NEW, partial(self._begin, work, failed))

    async def show(self, conversation: Conversation) -> None:
        """Put a conversation that is there on the screen, then go on with what waits for it."""
        self._session.load(opening=True)
        self._panel.dismiss()
        self._session.show(conversation)
        self._transcript.model_name = conversation.model.name
        self._draft.arrive(conversation)
        self._transcript.begin_with(conversation.summary)
        await self._transcript.show(conversation.steps)
        self._session.loaded()
        await self._go_on()

    def count_earlier(self) -> None:
        """Count the chats there are to come back to, where the welcome says so."""
        if not self._session.steps:
            workspace = self._session.workspace
            self._host.background("earlier", partial(_count, workspace), self._show_earlier)

    def _show_earlier(self, earlier: int | None) -> None:
        if earlier is not None:
            self._session.earlier = earlier
            self._host.refresh()

    async def _go_on(self) -> None:
        self._draft.read_pictures()
        self._session.warn(panel=self._panel.display)
        self._host.refresh()
        message = self._session.workspace.message
        if message and message != self._told:
            self._told = message
            self._host.say(message, "warning")
        self.count_earlier()
        self._draft.forecast_soon()
        await self._send_queued()

    def _load(self, work: Callable[[], Conversation], failed: Failed, then: str = "") -> None:
        self._panel.dismiss()
        self._session.load()
        self._host.refresh()
        self._begin(work, failed, then)

    def _begin(self, work: Callable[[], Conversation], failed: Failed, then: str = "") -> None:
        def attempt() -> Conversation | Exception:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - whatever fails, the screen says so
                return error

        self._host.background("load", attempt, partial(self._end, failed, then), exclusive=True)

    async def _end(self, failed: Failed, then: str, found: Conversation | Exception) -> None:
        if isinstance(found, Exception):
            self._session.loaded()
            self._host.refresh()
            await failed(found)
            self._host.refresh()
            return
        await self.show(found)
        if then:
            self._host.say(then)


def _count(workspace: Workspace) -> int | None:
    """How many chats are stored; None where nobody can tell. For a worker thread."""
    try:
        return len(workspace.sessions())
    except Q35Error:
        return None


def _warm_up() -> None:
    """Load what the turns need; the first paint did not wait for it."""
    from q35chat.tui.widgets import turns  # noqa: F401, PLC0415
    from q35chat.tui.widgets.answer import warm_up  # noqa: PLC0415

    warm_up()
