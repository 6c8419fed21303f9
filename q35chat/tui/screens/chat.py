"""The one main screen: wires composer, transcript, meters and a running turn to a conversation.

Decides what follows what the user did; `ChatCommands` holds the commands, `Generation` the
running turn. Asks the conversation for everything that is not about drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer

from q35chat.chat.events import Event
from q35chat.chat.service import Conversation, Forecast, Step, Workspace
from q35chat.chat.values import Attachment, Turn
from q35chat.errors import Q35Error
from q35chat.tui.chat_commands import ChatCommands
from q35chat.tui.commands import (
    BY_ID,
    panel_bindings,
    parse_slash,
    screen_bindings,
)
from q35chat.tui.drafting import Drafting
from q35chat.tui.feed import Batch
from q35chat.tui.generation import Ended, Generation
from q35chat.tui.meter import WARN_AT, Meter
from q35chat.tui.panels import Panels
from q35chat.tui.paste import is_existing_path, picture_paths
from q35chat.tui.preferences import Drafts
from q35chat.tui.text import count
from q35chat.tui.widgets.bars import Hints, NoticeLine, TitleBar
from q35chat.tui.widgets.chips import Chip
from q35chat.tui.widgets.composer import Composer, forecast_content
from q35chat.tui.widgets.meter_line import MeterLine
from q35chat.tui.widgets.meters import Meters
from q35chat.tui.widgets.panel import Panel, WayLine
from q35chat.tui.widgets.transcript import Edge, Transcript
from q35chat.tui.widgets.turns import AnswerView
from q35chat.tui.widgets.welcome import Welcome

FORECAST_DELAY_S: Final = 0.12
WIDE: Final = 100


@dataclass(frozen=True, slots=True)
class Opening:
    """What the application was started with."""

    session: str | None = None
    images: tuple[Path, ...] = ()
    prompt: str = ""
    pictures: bool = True


class ChatScreen(Screen[None]):
    """Conversation, meters, composer."""

    BINDINGS = [*screen_bindings(), *panel_bindings()]  # noqa: RUF012
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012

    def __init__(self, workspace: Workspace, opening: Opening, drafts: Drafts) -> None:
        super().__init__()
        self.workspace = workspace
        self.conversation: Conversation | None = None
        self.opening = opening
        self.meter = Meter()
        self.generation = Generation(self, self.meter, self._framed, self._turn_ended)
        self.drafting = Drafting(self, drafts)
        self.commands = ChatCommands(self)
        self.panels = Panels(self)
        self.queued = False
        self._waiting_paths = list(opening.images)
        self._forecast: tuple[str, Forecast] | None = None
        self._forecast_timer: Timer | None = None
        self._stopping = False
        self._noticed = False
        self.then_open: Conversation | None = None

    def compose(self) -> ComposeResult:
        """Title, conversation with meters beside it, composer, hints."""
        yield TitleBar()
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                yield Welcome()
                yield Transcript(pictures=self.opening.pictures)
                yield NoticeLine(id="notice")
                yield Panel()
                yield MeterLine()
                yield Composer()
            yield Meters()
        yield Hints()

    async def on_mount(self) -> None:
        """Show at once; load after the first paint."""
        self.refresh_state()
        if self.opening.prompt:
            self.composer.editor.put(self.opening.prompt)
        for path in self._waiting_paths:
            await self.composer.chips.add(path.name)
        self.call_after_refresh(self.load, self.opening.session)

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

    def load(self, session: str | None) -> None:
        """Load the model, then open `session` or a new conversation."""
        self.panel.dismiss()
        self._load(session)

    @work(thread=True, exclusive=True, group="load")
    def _load(self, session: str | None) -> None:
        try:
            self.workspace.load()
            conversation = self.workspace.open(session) if session else self.workspace.new()
        except Exception as error:  # noqa: BLE001 - whatever fails, the screen says so
            self.call_later(self.panels.load_failed, error, session)
        else:
            self.call_later(self.show_conversation, conversation)

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
        self.conversation, self._noticed = conversation, False
        self.transcript.model_name = conversation.model.name
        self.meter = Meter()
        self.generation = Generation(self, self.meter, self._framed, self._turn_ended)
        self.meter.idle(conversation.model, conversation.used_slots)
        await self.transcript.show(conversation.steps)
        await self.drafting.enter(conversation)
        paths, self._waiting_paths = self._waiting_paths, []
        for path, chip in zip(paths, self.composer.chips.chips, strict=False):
            self._read_picture(conversation, path, chip)
        self.refresh_state()
        self._warn()
        if self.workspace.message:
            self.say(self.workspace.message)
        self._ask_forecast_soon()
        if self.queued:
            await self._try_queued()

    # -- what the composer says

    @on(Composer.Changed)
    def _changed(self) -> None:
        self.drafting.changed()
        self._ask_forecast_soon()

    @on(Composer.Sent)
    async def _sent(self, event: Composer.Sent) -> None:
        text = event.text.rstrip()
        if self._is_command(text):
            await self._run_slash(text)
            return
        paths = picture_paths(text)
        if paths:
            await self.composer.put("", self.composer.chips.attachments)
            await self.attach(paths)
        elif self.generation.running:
            self._status("the answer is still being written · Esc stops it, your text stays")
        elif not self.composer.empty:
            await self.send()

    def _is_command(self, text: str) -> bool:
        typed = not self.composer.editor.pasted
        return typed and text.startswith("/") and "\n" not in text and not is_existing_path(text)

    async def _run_slash(self, text: str) -> None:
        parsed = parse_slash(text)
        if parsed is None:
            self._status(f"{text.split(maxsplit=1)[0]} is no command · F1 lists them")
            return
        await self.composer.put("", self.composer.chips.attachments)
        await self.run_command(parsed[0].id, parsed[1])

    @on(Composer.PicturesNamed)
    async def _pictures_named(self, event: Composer.PicturesNamed) -> None:
        await self.attach(event.paths)

    async def send(self) -> None:
        """Send what the composer holds, when everything it needs is there."""
        conversation, composer = self.conversation, self.composer
        if conversation is None or composer.chips.reading:
            self.queued = True
            what = "the model is loaded" if conversation is None else "the picture is read"
            self._status(f"sends when {what} · Esc keeps it as a draft")
            return
        self.queued = False
        text, attachments = composer.editor.full_text.strip(), composer.chips.attachments
        key = _key(text, attachments)
        if self._forecast and self._forecast[0] == key and not self._forecast[1].fits:
            await self.panels.too_large(self._forecast[1])
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
            if self.conversation is None:
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

    # -- forecast

    def _ask_forecast_soon(self) -> None:
        if self._forecast_timer is not None:
            self._forecast_timer.stop()
        self._forecast_timer = self.set_timer(FORECAST_DELAY_S, self._ask_forecast)

    def _ask_forecast(self) -> None:
        self._forecast_timer = None
        conversation, composer = self.conversation, self.composer
        self.drafting.save()
        if conversation is None or self.generation.running:
            return
        text, attachments = composer.editor.full_text.strip(), composer.chips.attachments
        if self._is_command(text) or not (text or attachments):
            self._forecast = None
            self.meter.idle(conversation.model, conversation.used_slots)
            self.refresh_state()
        else:
            self._compute_forecast(conversation, text, attachments)

    @work(thread=True, exclusive=True, group="forecast")
    def _compute_forecast(
        self, conversation: Conversation, text: str, attachments: tuple[Attachment, ...]
    ) -> None:
        try:
            forecast = conversation.forecast(text, attachments)
        except Q35Error as error:
            self.call_later(self._status, str(error))
        else:
            key = _key(text, attachments)
            self.call_later(self._show_forecast, conversation, key, forecast)

    def _show_forecast(self, conversation: Conversation, key: str, forecast: Forecast) -> None:
        text, attachments = self.composer.editor.full_text.strip(), self.composer.chips.attachments
        current = conversation is self.conversation and key == _key(text, attachments)
        if current and not self.generation.running:
            self._forecast = (key, forecast)
            self.meter.expect(forecast)
            self.refresh_state()

    # -- a running turn

    async def run_turn(
        self,
        make_events: Callable[[], Iterator[Event]],
        question: Turn | None,
        view: AnswerView | None = None,
    ) -> None:
        """Run a turn into a new answer on screen, or into `view`."""
        self.panel.dismiss()
        self._stopping = self._noticed = False
        self.query_one("#notice", NoticeLine).say("")
        self.generation.running = True
        self.query_one(Welcome).display = False
        target = view if view is not None else await self.transcript.begin(question)
        self.generation.start(make_events, target)
        self.refresh_state()

    def stop_turn(self) -> None:
        """Ask the running turn to stop."""
        if self.conversation is not None:
            self._stopping = True
            self.conversation.cancel()
            self.refresh_state()

    def _framed(self, batch: Batch) -> None:
        self._show_meters()
        for notice in batch.notices:
            self._noticed = True
            self.query_one("#notice", NoticeLine).say(notice, sign="●", colour="$primary")
        if batch.tokens:
            self._warn()
        if batch.plan is not None:
            self._show_title()
        self._show_hints()

    async def _turn_ended(self, ended: Ended) -> None:
        conversation = self.conversation
        if conversation is None:
            return
        self._stopping = False
        following, self.then_open = self.then_open, None
        if following is not None and ended.finished and ended.finished.reason != "cancelled":
            await self.show_conversation(following)
            self.say("This conversation starts from the summary")
            return
        await self.transcript.settle(conversation.steps)
        self.meter.idle(conversation.model, conversation.used_slots)
        if ended.error is not None:
            await self.drafting.give_back(conversation)
            await self.panels.turn_failed(ended.error)
        elif ended.finished is not None and ended.finished.reason == "capacity":
            await self.panels.capacity_reached()
        self._warn()
        self.refresh_state()
        self._ask_forecast_soon()

    # -- what the lines say

    def refresh_state(self) -> None:
        """Bring title, meters, status and hints up to date."""
        self._show_title()
        self._show_meters()
        self._show_hints()
        self._show_status()

    def _show_title(self) -> None:
        conversation = self.conversation
        title = conversation.title if conversation is not None else ""
        state = "loading the model…" if conversation is None else conversation.model.name
        self.query_one(TitleBar).show(title, state)
        empty = not self.steps and not self.generation.running
        welcome = self.query_one(Welcome)
        welcome.show(conversation.model if conversation is not None else None)
        welcome.display = empty
        self.transcript.display = not empty

    def _show_meters(self) -> None:
        reading = self.meter.reading()
        if self.has_class("-narrow"):
            self.query_one(MeterLine).show(reading)
        else:
            self.query_one(Meters).show(reading)

    def _warn(self) -> None:
        capacity = self.meter.capacity
        notice = self.query_one("#notice", NoticeLine)
        if self.panel.display:
            notice.say("")
        elif capacity.total and capacity.used >= WARN_AT * capacity.total:
            share = f"{capacity.used / capacity.total:.0%}"
            notice.say(f"{share} of the capacity is used · {count(capacity.free)} slots are left")
        elif not self._noticed:
            notice.say("")

    def _show_status(self) -> None:
        if self.queued:
            return
        if self._forecast is not None and not self.generation.running and not self.composer.empty:
            self.composer.show_status(forecast_content(self._forecast[1]))
        else:
            self._status(self.commands.thinking_words())

    def _status(self, text: str) -> None:
        self.composer.show_status(Content(text))

    def _show_hints(self) -> None:
        key = self.commands.key
        if self.generation.running:
            stop = "stopping…" if self._stopping else "stop"
            hints = [(key("stop"), stop)]
            if not self.transcript.following:
                hints.append((key("follow"), "↓ new text below"))
        elif self.drafting.editing is not None:
            hints = [
                ("Enter", "resend"),
                (key("stop"), "cancel"),
                (key("edit"), "earlier question"),
            ]
        else:
            hints = [("Enter", "send")]
            if self.steps:
                hints += [(key("regenerate"), "regenerate"), (key("edit"), "edit")]
            else:
                hints.append(("Ctrl+J", "new line"))
        self.query_one(Hints).show(
            [*hints, (key("palette"), "commands"), (key("help"), "help"), (key("quit"), "quit")]
        )

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
        self.call_after_refresh(self._show_meters)

    def on_click(self) -> None:
        """Typing always goes to the composer."""
        self.composer.editor.focus()


def _key(text: str, attachments: Sequence[Attachment]) -> str:
    return "\0".join([text, *(attachment.sha256 for attachment in attachments)])
