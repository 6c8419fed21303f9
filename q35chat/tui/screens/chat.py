"""The one main screen: wires composer, transcript, meters and a running turn to a conversation.

Decides what follows what the user did; `ChatCommands` holds the commands, `Generation` the
running turn. Asks the conversation for everything that is not about drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer

from q35chat.chat.events import Event
from q35chat.chat.service import Conversation, Step, Workspace
from q35chat.chat.values import Attachment, Turn
from q35chat.errors import Q35Error
from q35chat.tui.chat_commands import ChatCommands
from q35chat.tui.commands import (
    BY_ID,
    panel_bindings,
    parse_slash,
    screen_bindings,
)
from q35chat.tui.copying import Copying
from q35chat.tui.drafting import Drafting
from q35chat.tui.forecasting import Forecasting
from q35chat.tui.generation import Ended, Generation
from q35chat.tui.loading import Loading
from q35chat.tui.meter import Meter
from q35chat.tui.panels import Panels
from q35chat.tui.paste import is_existing_path, picture_paths
from q35chat.tui.preferences import Drafts
from q35chat.tui.status import Status
from q35chat.tui.widgets.bars import Hints, NoticeLine, TitleBar
from q35chat.tui.widgets.chips import Chip
from q35chat.tui.widgets.composer import Composer
from q35chat.tui.widgets.messages import Messages
from q35chat.tui.widgets.meter_line import MeterLine
from q35chat.tui.widgets.meters import Meters
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
        self.queued = False
        self._unpainted = False
        self._latest: Timer | None = None
        self._told = ""
        self._waiting_paths = list(opening.images)
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
                yield Composer()
            yield Meters()
        yield Hints()

    async def on_mount(self) -> None:
        """Show at once; load after the first paint."""
        self.status.refresh()
        if self.opening.prompt:
            self.composer.editor.put(self.opening.prompt)
        for path in self._waiting_paths:
            await self.composer.chips.add(path.name)
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

    def say(self, text: str, *, error: bool = False) -> None:
        """A short message that goes away by itself."""
        self.notify(text, severity="error" if error else "information", markup=False)

    # -- loading and opening

    @work(thread=True, exclusive=True, group="load")
    def open_conversation(self, session: str | None) -> None:
        """Open a conversation by id, or a new one."""
        try:
            conversation = self.workspace.open(session) if session else self.workspace.new()
        except Q35Error as error:
            self.call_later(self.say, str(error), error=True)
        else:
            self.call_later(self.show_conversation, conversation)

    async def show_conversation(self, conversation: Conversation) -> None:
        """Put another conversation on the screen, with its draft."""
        await self.drafting.leave()
        self.panel.dismiss()
        self.conversation, self.status.noticed = conversation, False
        self.transcript.model_name = conversation.model.name
        self.meter = Meter()
        self.generation = Generation(self, self.meter, self.status.frame, self._turn_ended)
        self.meter.idle(conversation.model, conversation.used_slots)
        self.transcript.begin_with(conversation.summary)
        await self.transcript.show(conversation.steps)
        await self.drafting.enter(conversation)
        paths, self._waiting_paths = self._waiting_paths, []
        for path, chip in zip(paths, self.composer.chips.chips, strict=False):
            self._read_picture(conversation, path, chip)
        self.status.refresh()
        self.status.warn()
        self._tell(self.workspace.message)
        self.forecasting.soon()
        if self.queued:
            await self._try_queued()

    def _tell(self, message: str) -> None:
        """What the store has to say, once."""
        if message and message != self._told:
            self._told = message
            self.notify(message, severity="warning", markup=False)

    # -- what the composer says

    @on(Composer.Changed)
    def _changed(self) -> None:
        self.drafting.changed()
        self.forecasting.soon()

    @on(Composer.Sent)
    async def _sent(self, event: Composer.Sent) -> None:
        text = event.text.rstrip()
        if self.is_command(text):
            await self._run_slash(text)
            return
        paths = picture_paths(text)
        if paths:
            await self.composer.put("", self.composer.chips.attachments)
            await self.attach(paths)
        elif self.generation.running:
            self.status.say("the answer is still being written · Esc stops it, your text stays")
        elif not self.composer.empty:
            await self.send()

    def is_command(self, text: str) -> bool:
        """Whether the draft is a command: typed, on one line, and no path that exists."""
        typed = not self.composer.editor.pasted
        return typed and text.startswith("/") and "\n" not in text and not is_existing_path(text)

    async def _run_slash(self, text: str) -> None:
        parsed = parse_slash(text)
        if parsed is None:
            self.status.say(f"{text.split(maxsplit=1)[0]} is no command · F1 lists them")
            return
        await self.composer.put("", self.composer.chips.attachments)
        await self.run_command(parsed[0].id, parsed[1])

    @on(Composer.PicturesNamed)
    async def _pictures_named(self, event: Composer.PicturesNamed) -> None:
        await self.attach(event.paths)

    async def send(self) -> None:
        """Send what the composer holds, when everything it needs is there."""
        conversation, composer = self.conversation, self.composer
        loading = conversation is None or self.loader.running
        if conversation is None or loading or composer.chips.reading:
            self.queued = True
            what = "the model is loaded" if loading else "the picture is read"
            self.status.say(f"sends when {what} · Esc keeps it as a draft")
            return
        self.queued = False
        text, attachments = composer.editor.full_text.strip(), composer.chips.attachments
        refusal = self.forecasting.refusal()
        if refusal is not None:
            await self.panels.too_large(refusal)
            return
        edited = self.drafting.editing
        composer.editor.past.add(text)
        self.drafting.sent()
        await composer.put("")
        question = Turn("user", text, attachments)
        if edited is not None:
            await self.transcript.cut_from(edited)
            await self.run_turn(lambda: conversation.edit(edited, text, attachments), question)
        else:
            await self.run_turn(lambda: conversation.send(text, attachments), question)

    async def _try_queued(self) -> None:
        if self.queued and self.conversation is not None and not self.composer.chips.reading:
            await self.send()

    async def attach(self, paths: Sequence[Path]) -> None:
        """Add pictures; each is read in a worker."""
        for path in paths:
            chip = await self.composer.chips.add(path.name)
            if self.conversation is None or self.loader.running:
                self._waiting_paths.append(path)
            else:
                self._read_picture(self.conversation, path, chip)

    @work(thread=True, group="attach")
    def _read_picture(self, conversation: Conversation, path: Path, chip: Chip) -> None:
        try:
            attachment = conversation.attach(path)
        except Q35Error as error:
            self.call_later(self._attached, chip, None, str(error))
        else:
            self.call_later(self._attached, chip, attachment, "")

    async def _attached(self, chip: Chip, attachment: Attachment | None, problem: str) -> None:
        if attachment is None:
            self.queued = False
            self.say(problem, error=True)
            if chip.is_attached:
                await self.composer.chips.drop(chip)
        elif chip.is_attached:
            chip.ready(attachment)
        self._changed()
        await self._try_queued()

    # -- a running turn

    async def run_turn(
        self,
        make_events: Callable[[], Iterator[Event]],
        question: Turn | None,
        view: AnswerView | None = None,
    ) -> None:
        """Run a turn into a new answer on screen, or into `view`."""
        self.panel.dismiss()
        self.status.begin()
        events = make_events()  # before anything waits: from here on it can be stopped
        self.generation.running = True
        target = view if view is not None else await self.transcript.begin(question)
        self.generation.start(lambda: events, target)
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
        following, self.then_open = self.then_open, None
        if following is not None and ended.finished and ended.finished.reason != "cancelled":
            await self.show_conversation(following)
            self.say("This chat starts from the summary")
            return
        await self.transcript.settle(conversation.steps)
        self.meter.idle(conversation.model, conversation.used_slots)
        if ended.error is not None:
            await self.drafting.give_back(conversation)
            await self.panels.turn_failed(ended.error, summarising=following is not None)
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
