"""Opens the application over a scripted workspace and looks at what is on its screen."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from q35chat.chat.conversation import Conversation
from q35chat.settings import Settings
from q35chat.tui.app import ChatApp
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.images.graphics import PictureDisplay
from q35chat.tui.screens.chat import ChatScreen, Opening
from q35chat.tui.widgets.meters import Meters
from tests.doubles.scripted_workspace import ScriptedConversation, ScriptedWorkspace, dialogue
from tests.support.patience import Patience

PANEL_FROM = 100
WIDE = (120, 36)
NARROW = (80, 24)
HELD = frozenset({"generate", "load", "export"})
"""Groups of workers that scenes stop half-way."""


class ListeningApp(ChatApp):
    """Remembers its messages, which otherwise go away by themselves."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.messages: list[str] = []

    def notify(self, message: str, **options: Any) -> None:
        """Show and remember."""
        self.messages.append(message)
        super().notify(message, **options)


class Chat:
    """An open application: its pilot, its chat screen, what it shows."""

    def __init__(self, app: ListeningApp, pilot: Pilot[None], workspace: ScriptedWorkspace) -> None:
        self.app: ListeningApp = app
        self.pilot = pilot
        self.workspace = workspace

    @property
    def screen(self) -> ChatScreen:
        screen = self.app.screen_stack[1]
        assert isinstance(screen, ChatScreen)
        return screen

    @property
    def conversation(self) -> ScriptedConversation:
        conversation = self.screen.session.conversation
        assert isinstance(conversation, ScriptedConversation)
        return conversation

    @property
    def text(self) -> str:
        """Everything on the screen on top, line by line."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line) for line in lines)

    @property
    def flat(self) -> str:
        """The same without line breaks and repeated spaces, and without the side panel."""
        strips = self.app.screen._compositor.render_strips()
        if isinstance(self.app.screen, ChatScreen) and self.app.size.width >= PANEL_FROM:
            edge = self.app.screen.query_one(Meters).region.x
            strips = [strip.crop(0, edge) for strip in strips]
        return " ".join(" ".join(strip.text for strip in strips).split())

    @property
    def written(self) -> str:
        """What stands in the composer."""
        return self.screen.composer.editor.text

    @property
    def said(self) -> str:
        """All messages that ever went up in a corner."""
        return " ".join(self.app.messages)

    @asynccontextmanager
    async def wish(self, words: str) -> AsyncIterator[Callable[[], None]]:
        """Fail with the words and the screen where what is inside does not end in time; what it
        gives is called while it goes on, and looks for progress on the screen."""
        patience, looked, text = Patience(), time.monotonic(), ""
        try:
            async with asyncio.timeout(patience.left_s) as limit:

                def look() -> None:
                    nonlocal looked, text
                    if time.monotonic() - looked > 1:
                        looked, before, text = time.monotonic(), text, self.text
                        if text != before:
                            patience.progress()
                            limit.reschedule(asyncio.get_running_loop().time() + patience.left_s)

                yield look
        except (TimeoutError, asyncio.CancelledError) as error:  # cancelled: the test's own limit
            said = f"\nmessages: {self.said}" if self.said else ""
            raise AssertionError(f"never came: {words}{said}\n{self.text}") from error

    async def until(self, happened: Callable[[], bool], words: str = "") -> None:
        """Let the application run until something is so."""
        async with self.wish(words or inspect.getsource(happened).strip()) as look:
            while not happened():
                look()
                await self.pilot.pause(0.01)

    async def see(self, words: str) -> None:
        """Wait until the words are on the screen."""
        await self.until(lambda: words in self.flat, f"{words!r} on the screen")

    async def hear(self, words: str) -> None:
        """Wait until a message says the words."""
        await self.until(lambda: words in self.said, f"{words!r} in a message")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def click(
        self, target: Widget | type[Widget] | str, offset: tuple[int, int] = (0, 0), times: int = 1
    ) -> None:
        """Click on a widget once the screen rests with this cell of it in sight."""
        await self.settled()
        screen = self.app.screen
        widget = target if isinstance(target, Widget) else screen.query(target).first()
        await self.until(
            lambda: screen.find_widget(widget).visible_region.contains_point(
                widget.region.offset + offset
            ),
            f"{widget} in sight, to be clicked",
        )
        await self.pilot.click(widget, offset=offset, times=times)

    async def at_once(self, *inputs: str | events.Paste) -> None:
        """Press keys, or paste, before the screen has seen the first of them."""
        for given in inputs:
            if isinstance(given, events.Paste):
                self.app.post_message(given)
            elif len(given) == 1:
                self.app.post_message(events.Key(_character_to_key(given), given))
            else:
                self.app.post_message(events.Key(given, None))
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        """Put text into the composer as if it had been typed."""
        self.screen.composer.editor.insert(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Write and press Enter."""
        await self.write(text)
        await self.press("enter")

    async def sent(self, text: str) -> None:
        """Wait for the end of the first turn, which has this question."""
        await self.until(lambda: len(self.conversation.steps) > 1)
        assert self.conversation.steps[0].turn.text == text

    async def open(self, conversation: Conversation) -> None:
        """Open a stored conversation."""
        self.screen.loader.open(conversation.id)
        await self.until(lambda: self.screen.session.available is conversation)

    async def ask(self, text: str) -> None:
        """Write, send, and wait for the end of the turn."""
        turns = len(self.conversation.steps)
        await self.send(text)
        await self.until(lambda: len(self.conversation.steps) > turns)
        await self.idle()

    async def new(self) -> None:
        """Begin a new chat."""
        before = self.screen.session.conversation
        await self.press("ctrl+n")
        await self.until(lambda: self.screen.session.available not in {None, before})

    async def attach(self, *paths: Path) -> None:
        """Attach pictures and wait until they are read."""
        chips = self.screen.composer.chips
        wanted = len(chips.chips) + len(paths)
        self.screen.draft.attach(paths)
        await self.until(lambda: len(chips.attachments) == wanted)

    async def resized(self, *size: int) -> str:
        """The screen at another size."""
        await self.pilot.resize_terminal(*size)
        return await self.settled()

    async def made(self, tokens: int) -> None:
        """Wait until the turn has so many tokens on the meter."""
        await self.until(lambda: self.screen.session.meter.made >= tokens)

    async def settled(self) -> str:
        """The screen once all that is on its way has come: what rests before it is asked for, what
        workers bring, and what that draws. A worker that a test holds at a gate is left alone."""
        async with self.wish("the screen comes to rest") as look:
            while True:
                before, busy = self.text, self._busy()
                while any(not worker.is_finished for worker in busy):
                    look()
                    await self.pilot.pause(0.01)
                await self.pilot.pause()
                busy = busy or self._busy()
                if self.text == before and not (busy or self.screen.draft._timer):
                    return before

    def _busy(self) -> list[Worker[Any]]:
        """The workers that end by themselves."""
        return [it for it in self.app.workers if it.group not in HELD and not it.is_finished]

    async def idle(self) -> None:
        """Wait until no turn runs and the screen has settled."""
        await self.until(lambda: not self.screen.session.running)
        await self.pilot.pause()


@asynccontextmanager
async def opened(
    workspace: ScriptedWorkspace | None = None,
    *,
    size: tuple[int, int] = WIDE,
    opening: Opening | None = None,
    settings: Settings | None = None,
    drafts: Drafts | None = None,
    picture_display: PictureDisplay | None = None,
    loaded: bool = True,
) -> AsyncIterator[Chat]:
    """The application, with its model loaded unless told otherwise."""
    scripted = workspace if workspace is not None else ScriptedWorkspace()
    app = ListeningApp(
        scripted,
        opening or Opening(),
        settings or Settings(),
        drafts or Drafts.at_home(),
        picture_display,
    )
    async with app.run_test(size=size) as pilot:
        chat = Chat(app, pilot, scripted)
        await chat.until(lambda: len(app.screen_stack) > 1)
        if loaded:
            await chat.until(lambda: chat.screen.session.available is not None)
            await pilot.pause()
        try:
            yield chat
        except asyncio.CancelledError as error:
            raise AssertionError(f"the test took too long:\n{chat.text}") from error
        finally:
            app.exit()  # as a user leaves; the pilot alone would pull the screen from under it


def box(chat: Chat) -> Input:
    """The first field of the screen on top."""
    return chat.app.screen.query_one(Input)


async def list_of_chats(chat: Chat) -> None:
    """Open the list: the open chat and three of two turns each."""
    await chat.ask("the open one")
    for title in ("Norway", "Binary search", "Cooking"):
        chat.workspace.add(title, dialogue(2))
    await chat.press("ctrl+l")
    await chat.see("Cooking")


def picture_file(folder: Path, name: str = "house.png", size: tuple[int, int] = (64, 32)) -> Path:
    """A small picture on disk."""
    path = folder / name
    Image.new("RGB", size, (200, 80, 40)).save(path)
    return path


def picture_bytes(size: tuple[int, int] = (64, 32)) -> bytes:
    """A small picture in memory, left half red, right half blue."""
    image = Image.new("RGB", size, (255, 0, 0))
    image.paste((0, 0, 255), (size[0] // 2, 0, size[0], size[1]))
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
