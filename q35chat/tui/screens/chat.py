"""The one main screen: wires composer, transcript, meters and a running turn to a conversation.

Decides what follows what the user did; `ChatCommands` holds the commands, `Generation` the
running turn. Asks the conversation for everything that is not about drawing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer

from q35chat.chat.events import Event
from q35chat.chat.service import Conversation, Step, Workspace
from q35chat.errors import Q35Error
from q35chat.tui.chat.attaching import Attaching
from q35chat.tui.chat.chat_commands import ChatCommands
from q35chat.tui.chat.copying import Copying
from q35chat.tui.chat.drafting import NEW, Drafting
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.chat.forecasting import Forecasting
from q35chat.tui.chat.generation import Ended, Generation
from q35chat.tui.chat.loading import Loading
from q35chat.tui.chat.meter import Meter
from q35chat.tui.chat.panels import Panels
from q35chat.tui.chat.paste import is_existing_path, picture_paths
from q35chat.tui.chat.sending import Sending
from q35chat.tui.chat.status import Status
from q35chat.tui.commands import (
    BY_ID,
    panel_bindings,
    parse_slash,
    screen_bindings,
)
from q35chat.tui.widgets.bars import Hints, NoticeLine, TitleBar
from q35chat.tui.widgets.composer import Composer
from q35chat.tui.widgets.messages import Messages, Severity
from q35chat.tui.widgets.meters import MeterLine, Meters
from q35chat.tui.widgets.panel import Panel, WayLine
from q35chat.tui.widgets.transcript import Edge, Transcript
from q35chat.tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from q35chat.tui.app import ChatApp
    from q35chat.tui.widgets.turns import AnswerView

WIDE: Final = 100
_LATEST_S: Final = 0.5


@runtime_checkable
class AsksFirst(Protocol):
    """A screen that may have to ask before the application is left."""

    def asks_first(self) -> bool:
        """Whether it asks now, and the application stays."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the application was started with."""

    session: str | None = None
    images: tuple[Path, ...] = ()
    prompt: str = ""


class ChatScreen(Screen[None]):
    """Conversation, meters, composer."""

    BINDINGS = [*screen_bindings(), *panel_bindings()]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012

    def __init__(self, workspace: Workspace, opening: Opening, drafts: Drafts) -> None:
        super().__init__()
        self.workspace = workspace
        self.conversation: Conversation | None = None
        self.opening = opening
        self.meter = Meter()
        self.status = Status(self)
        self.forecasting = Forecasting(self)
        self.generation = Generation(self, self.meter, self.status.frame, self._turn_ended)
        self.drafting = Drafting(self, drafts)
        self.commands = ChatCommands(self)
        self.copying = Copying(self)
        self.panels = Panels(self)
        self.loader = Loading(self)
        self.messages = Messages()
        self.attaching = Attaching(self)
        self.sending = Sending(self)
        self._unpainted = False
        self._latest: Timer | None = None
        self._told = ""
        self.earlier = 0
        self.then_open: Conversation | None = None

    def compose(self) -> ComposeResult:
        """Title, conversation with meters beside it, composer, hints."""
        yield TitleBar()
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                yield Welcome()
                yield Transcript()
                yield NoticeLine(id="notice")
                yield Panel()
                yield MeterLine()
                yield self.messages
                yield Composer(self._send, self.attaching.add)
            yield Meters()
        yield Hints()

    def on_mount(self) -> None:
        """Show at once; load after the first paint."""
        self.status.refresh()
        if self.opening.prompt:
            self.composer.editor.put(self.opening.prompt)
        elif not self.opening.session:
            self.drafting.turn_to(NEW)
        self.attaching.add(self.opening.images)
        self._unpainted = True
        # where a dialog is painted instead
        self._latest = self.set_timer(_LATEST_S, self._painted)

    def _compositor_refresh(self) -> None:
        super()._compositor_refresh()
        if self._unpainted and not self.app._batch_count:
            self.call_later(self._painted)

    def _painted(self) -> None:
        """Once: what the first paint did not wait for begins."""
        if self._unpainted:
            self._unpainted = False
            if self._latest is not None:
                self._latest.stop()
                self._latest = None
            cast("ChatApp", self.app).painted()
            self.loader.load(self.opening.session)

    def expect(self, size: Size) -> None:
        """Be styled for this size from the start, not once more with the first resize."""
        for breakpoints, cells in (
            (self.HORIZONTAL_BREAKPOINTS, size.width),
            (self.VERTICAL_BREAKPOINTS, size.height),
        ):
            _, reached = max(entry for entry in breakpoints if entry[0] <= cells)
            for _, name in breakpoints:
                self.set_class(name == reached, name, update=False)

    def on_unmount(self) -> None:
        """However the screen goes, no turn runs on without it."""
        if self.generation.running and self.conversation is not None:
            self.conversation.cancel()

    @property
    def composer(self) -> Composer:
        """Where messages are written."""
        return self.query_one(Composer)

    @property
    def transcript(self) -> Transcript:
        """Where they are shown."""
        return self.query_one(Transcript)

    @property
    def panel(self) -> Panel:
        """Where the ways on are offered."""
        return self.query_one(Panel)

    @property
    def steps(self) -> Sequence[Step]:
        """The open conversation's turns."""
        return self.conversation.steps if self.conversation is not None else ()

    def say(self, text: str, *, error: bool = False, about: str = "") -> None:
        """A short message that goes away by itself, or with a newer one about the same."""
        severity: Severity = "error" if error else "information"
        self.notify(text, title=about, severity=severity, markup=False)

    # -- loading and opening

    @property
    def ready(self) -> Conversation | None:
        """The open conversation, where its model is there and no other one is on its way."""
        return None if self.loader.running else self.conversation

    async def show_conversation(self, conversation: Conversation) -> None:
        """Put a conversation on the screen, with its draft."""
        self.panel.dismiss()
        self.conversation, self.status.noticed = conversation, False
        self.transcript.model_name = conversation.model.name
        self.meter = Meter()
        self.generation = Generation(self, self.meter, self.status.frame, self._turn_ended)
        self.meter.idle(conversation)
        self.drafting.arrive(conversation)
        self.transcript.begin_with(conversation.summary)
        await self.transcript.show(conversation.steps)

    async def go_on(self) -> None:
        """A conversation is ready: do what waited for it."""
        self.attaching.begin()
        self.status.refresh()
        self.status.warn()
        self._tell(self.workspace.message)
        self.look_for_earlier()
        self.forecasting.soon()
        await self.sending.try_queued()

    def look_for_earlier(self) -> None:
        """Count the chats there are to come back to, where the welcome says so."""
        if not self.steps:
            self.run_worker(self._count_earlier, thread=True, group="earlier")

    def _count_earlier(self) -> None:
        with suppress(Q35Error):
            self.call_later(self._show_earlier, len(self.workspace.sessions()))

    def _show_earlier(self, earlier: int) -> None:
        self.earlier = earlier
        self.status.show_title()

    def _tell(self, message: str) -> None:
        """What the store has to say, once."""
        if message and message != self._told:
            self._told = message
            self.notify(message, severity="warning", markup=False)

    # -- what the composer says

    @on(Composer.Changed)
    def changed(self) -> None:
        """The composer holds something else."""
        if self.composer.empty:
            self.sending.forget()
        self.attaching.begin()
        self.drafting.changed()
        self.forecasting.soon()

    async def _send(self, text: str) -> None:
        text = text.rstrip()
        if self.is_command(text):
            await self._run_slash(text)
            return
        paths = picture_paths(text)
        if paths:
            self.composer.editor.put("")
            self.attaching.add(paths)
        else:
            await self.sending.send()

    def is_command(self, text: str) -> bool:
        """Whether the draft is a command: typed, on one line, and no path that exists."""
        typed = not self.composer.editor.pasted
        return typed and text.startswith("/") and "\n" not in text and not is_existing_path(text)

    async def _run_slash(self, text: str) -> None:
        parsed = parse_slash(text)
        if parsed is None:
            self.status.say(f"{text.split(maxsplit=1)[0]} is no command · F1 lists them")
            return
        self.composer.editor.put("")
        await self.run_command(parsed[0].id, parsed[1])

    # -- a running turn

    async def run_turn(
        self,
        make_events: Callable[[], Iterator[Event]],
        make_view: Callable[[], Awaitable[AnswerView]],
    ) -> None:
        """Run a turn into an answer on screen."""
        self.panel.dismiss()
        self.messages.go_on()
        self.status.begin()
        self.sending.forget()
        events = make_events()  # before anything waits: from here on it can be stopped
        self.generation.running = True
        view = await make_view()
        self.generation.start(lambda: events, view)
        self.status.refresh()

    def stop_turn(self) -> None:
        """Ask the running turn to stop."""
        if self.conversation is not None:
            self.status.stopping = True
            self.conversation.cancel()
            self.status.refresh()

    async def _turn_ended(self, ended: Ended) -> None:
        conversation = self.conversation
        if conversation is None:
            return
        self.status.stopping = False
        self.commands.turn_ended()
        following, self.then_open = self.then_open, None
        if following is not None and ended.finished and ended.finished.reason != "cancelled":
            await self.loader.show(following)
            self.say("This chat starts from the summary")
            return
        await self.transcript.synchronise(conversation.steps)
        self.meter.idle(conversation)
        if ended.error is not None:
            question = self.drafting.give_back(conversation)
            await self.panels.turn_failed(ended.error, question, summarising=following is not None)
        elif ended.finished is not None and ended.finished.reason == "capacity":
            await self.panels.capacity_reached()
        self.status.warn()
        self.status.refresh()
        self.forecasting.soon()

    # -- keys and clicks

    async def action_command(self, command_id: str) -> None:
        """Run a command by key."""
        await self.run_command(command_id)

    async def run_command(self, command_id: str, argument: str = "") -> None:
        """Run a command of the table."""
        await self.commands.run(BY_ID[command_id], argument)

    async def action_choose(self, index: int) -> None:
        """Take one of the ways a panel offers."""
        await self.panels.choose(index)

    @on(WayLine.Chosen)
    async def _way_clicked(self, event: WayLine.Chosen) -> None:
        await self.panels.choose(event.index)

    @on(Edge.Asked)
    async def _edge_asked(self, event: Edge.Asked) -> None:
        await (self.transcript.earlier() if event.side == "earlier" else self.transcript.later())

    def on_resize(self) -> None:
        """The other meters may be on screen now."""
        self.call_after_refresh(self.status.show_meters)

    def on_click(self) -> None:
        """Typing always goes to the composer."""
        self.composer.editor.focus()
