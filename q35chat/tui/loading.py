"""Which model answers: loading it, loading it again after it died, putting another in its place.

Works in a thread. While it does, the conversation stays on screen and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from q35chat.chat.service import Conversation

if TYPE_CHECKING:
    from q35chat.tui.exporting import Made
    from q35chat.tui.screens.chat import ChatScreen


class Loading:
    """`running` from the wish to the model that answers, or to the panel that says why not;
    `failed` from there to the next try."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.running = False
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

        self._begin(work, failed)

    def restart(self) -> None:
        """Load the model again, whatever became of it, under the conversation on screen."""
        workspace, conversation = self._screen.workspace, self._screen.conversation

        def work() -> Conversation:
            workspace.restart()
            return workspace.reopen(conversation) if conversation else workspace.new()

        self._begin(work, self._screen.panels.restart_failed)

    def use(self, made: Made) -> None:
        """Let the model of a bundle answer from now on; where it cannot, the present one stays."""
        workspace, conversation = self._screen.workspace, self._screen.conversation

        def work() -> Conversation:
            workspace.use(made.folder)
            return workspace.reopen(conversation) if conversation else workspace.new()

        async def failed(error: Exception) -> None:
            await self._screen.panels.use_failed(error, made)

        self._begin(work, failed, f"{made.model} answers from now on · next time: {made.command}")

    def _begin(
        self,
        work: Callable[[], Conversation],
        failed: Callable[[Exception], Awaitable[None]],
        then: str = "",
    ) -> None:
        screen = self._screen
        screen.panel.dismiss()
        self.running, self.failed = True, False
        screen.status.refresh()

        def run() -> None:
            try:
                conversation = work()
            except Exception as error:  # noqa: BLE001 - whatever fails, the screen says so
                screen.call_later(self._failed, failed, error)
            else:
                screen.call_later(self._loaded, conversation, then)

        screen.run_worker(run, thread=True, exclusive=True, group="load")

    async def _loaded(self, conversation: Conversation, then: str) -> None:
        self.running = False
        await self._screen.show_conversation(conversation)
        if then:
            self._screen.say(then)

    async def _failed(
        self, failed: Callable[[Exception], Awaitable[None]], error: Exception
    ) -> None:
        self.running, self.failed = False, True
        self._screen.status.refresh()
        await failed(error)


def _warm_up() -> None:
    """Load what the turns need; the first paint did not wait for it."""
    from q35chat.tui.widgets import turns  # noqa: F401, PLC0415
    from q35chat.tui.widgets.answer import warm_up  # noqa: PLC0415

    warm_up()
