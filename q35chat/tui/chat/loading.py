"""What is on its way to the screen: the model that answers, or another chat with the same model.

Works in a thread. While it does, the conversation on screen stays and nothing is sent; what is
written while a chat is opened is for that chat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from q35chat.chat.service import Conversation
from q35chat.tui.chat.drafting import NEW

if TYPE_CHECKING:
    from q35chat.tui.exporting import Made
    from q35chat.tui.screens.chat import ChatScreen

Failed = Callable[[Exception], Awaitable[None]]


class Loading:
    """`running` from the wish to the chat on screen, or to what says why not; `opening` with it
    where the model stays. `failed` from a model that did not come to the next try."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.running = False
        self.opening = False
        self.failed = False

    def load(self, session: str | None) -> None:
        """Load the model, then open `session` or a new conversation."""
        workspace = self._screen.workspace

        def work() -> Conversation:
            _warm_up()
            workspace.load()
            return workspace.open(session) if session else workspace.new()

        async def failed(error: Exception) -> None:
            await self._screen.panels.load_failed(error, session)

        self._load(work, failed)

    def restart(self) -> None:
        """Load the model again, whatever became of it, under the conversation on screen."""
        workspace, conversation = self._screen.workspace, self._screen.conversation

        def work() -> Conversation:
            workspace.restart()
            return workspace.reopen(conversation) if conversation else workspace.new()

        self._load(work, self._screen.panels.restart_failed)

    def use(self, made: Made) -> None:
        """Let the model of a bundle answer from now on; where it cannot, the present one stays."""
        workspace, conversation = self._screen.workspace, self._screen.conversation

        def work() -> Conversation:
            workspace.use(made.folder)
            return workspace.reopen(conversation) if conversation else workspace.new()

        async def failed(error: Exception) -> None:
            self._screen.sending.forget()
            await self._screen.panels.use_failed(error, made)
            self._screen.attaching.begin()

        self._load(work, failed, f"{made.model} answers from now on · next time: {made.command}")

    def open(self, session: str | None) -> None:
        """Open a conversation by id, or a new one."""
        screen, workspace = self._screen, self._screen.workspace

        def work() -> Conversation:
            return workspace.open(session) if session else workspace.new()

        async def failed(error: Exception) -> None:
            screen.panels.open_failed(error)
            screen.sending.forget()
            if screen.conversation is not None:
                screen.drafting.turn_back(screen.conversation)
            await screen.go_on()

        def begin() -> None:
            screen.drafting.turn_to(session or NEW)
            self._begin(work, failed)

        self.running = self.opening = True
        screen.sending.forget()
        screen.forecasting.forget()
        screen.status.refresh()
        # after the keys that were pressed before: those are for the chat that is left
        screen.composer.editor.call_later(begin)

    async def show(self, conversation: Conversation) -> None:
        """Put a conversation that is there on the screen, then go on with what waits for it."""
        self.running = self.opening = True
        await self._screen.show_conversation(conversation)
        self.running = self.opening = False
        await self._screen.go_on()

    def _load(self, work: Callable[[], Conversation], failed: Failed, then: str = "") -> None:
        self._screen.panel.dismiss()
        self.running, self.failed = True, False
        self._screen.status.refresh()
        self._begin(work, failed, then)

    def _begin(self, work: Callable[[], Conversation], failed: Failed, then: str = "") -> None:
        screen = self._screen

        def run() -> None:
            try:
                conversation = work()
            except Exception as error:  # noqa: BLE001 - whatever fails, the screen says so
                screen.call_later(self._failed, failed, error)
            else:
                screen.call_later(self._loaded, conversation, then)

        screen.run_worker(run, thread=True, exclusive=True, group="load")

    async def _loaded(self, conversation: Conversation, then: str) -> None:
        await self.show(conversation)
        if then:
            self._screen.say(then)

    async def _failed(self, failed: Failed, error: Exception) -> None:
        self.failed = self.failed or not self.opening
        self.running = self.opening = False
        self._screen.status.refresh()
        await failed(error)


def _warm_up() -> None:
    """Load what the turns need; the first paint did not wait for it."""
    from q35chat.tui.widgets import turns  # noqa: F401, PLC0415
    from q35chat.tui.widgets.answer import warm_up  # noqa: PLC0415

    warm_up()
