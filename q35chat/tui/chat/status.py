"""What the lines around the conversation say: title, meters, warning, status, hints.

Reads the chat screen's state and changes none of it but its own two flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from q35chat.tui.chat.feed import Batch
from q35chat.tui.chat.meter import WARN_AT
from q35chat.tui.commands import PANEL_KEYS, key_label
from q35chat.tui.text import count
from q35chat.tui.widgets.bars import Hints, NoticeLine, TitleBar
from q35chat.tui.widgets.composer import forecast_lines
from q35chat.tui.widgets.meters import MeterLine, Meters
from q35chat.tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from q35chat.tui.screens.chat import ChatScreen


class Status:
    """`noticed`: the engine's notice stays until the next turn; `stopping`: Esc was pressed."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self.noticed = False
        self.stopping = False

    def refresh(self) -> None:
        """Bring everything up to date."""
        self.show_title()
        self.show_meters()
        self.show_hints()
        self._show_line()

    def begin(self) -> None:
        """A turn starts: what was said about the last one goes."""
        self.stopping = self.noticed = False
        self._notice.say("")
        self._screen.query_one(Welcome).display = False

    def frame(self, batch: Batch) -> None:
        """Show what a frame of a running turn brought."""
        self.show_meters()
        for notice in batch.notices:
            self.noticed = True
            self._notice.say(notice, sign="●", colour="$primary")
        if batch.tokens:
            self.warn()
        if batch.plan is not None:
            self.show_title()
        self.show_hints()

    @property
    def _notice(self) -> NoticeLine:
        return self._screen.query_one("#notice", NoticeLine)

    def show_title(self) -> None:
        """The title, and the welcome while there is no conversation to show."""
        screen = self._screen
        conversation = screen.conversation
        title = conversation.title if conversation is not None else ""
        loading = screen.loader.running and not screen.loader.opening
        model = None if loading or conversation is None else conversation.model
        absent = "no model" if screen.loader.failed else "loading the model…"
        state = model.name if model is not None else absent
        screen.query_one(TitleBar).show(title, state)
        begun = conversation is not None and bool(conversation.summary)
        empty = not (screen.steps or begun or screen.generation.running)
        welcome = screen.query_one(Welcome)
        welcome.show(
            model,
            screen.commands.key("setup"),
            failed=screen.loader.failed,
            earlier=screen.earlier,
            chats_key=screen.commands.key("sessions"),
        )
        welcome.display = empty
        screen.transcript.display = not empty

    def show_meters(self) -> None:
        """The meters; those that are not on screen have the numbers too, for when they are."""
        reading = self._screen.meter.reading()
        self._screen.query_one(MeterLine).show(reading)
        self._screen.query_one(Meters).show(reading)

    def warn(self) -> None:
        """The quiet line about capacity; a panel on screen says it already."""
        capacity = self._screen.meter.capacity
        if self._screen.panel.display:
            self._notice.say("")
        elif capacity.total and capacity.used >= WARN_AT * capacity.total:
            share = f"{capacity.used / capacity.total:.0%}"
            free = count(capacity.free)
            self._notice.say(f"{share} of the capacity is used · {free} slots are left")
        elif not self.noticed:
            self._notice.say("")

    def say(self, text: str) -> None:
        """The line under the text being written."""
        self._screen.composer.show_status(Content(text))

    def _show_line(self) -> None:
        screen = self._screen
        if screen.sending.queued:
            return
        forecast = screen.forecasting.forecast
        if forecast is not None and not screen.generation.running and not screen.composer.empty:
            screen.composer.show_status(*forecast_lines(forecast))
        else:
            self.say(screen.commands.thinking_words())

    def show_hints(self) -> None:
        """The keys that matter now."""
        key = self._screen.commands.key
        always = [(key("help"), "help"), (key("quit"), "quit")]
        hints = [*self._hints(), (key("palette"), "commands")]
        self._screen.query_one(Hints).show(hints, always)

    def _hints(self) -> list[tuple[str, str]]:
        screen, key = self._screen, self._screen.commands.key
        if screen.generation.running:
            below = [] if screen.transcript.following else [(key("follow"), "↓ new text below")]
            return [(key("stop"), "stopping…" if self.stopping else "stop"), *below]
        if screen.panel.display:
            return [*_choices(len(screen.panel.ways)), (key("stop"), "close")]
        if screen.drafting.editing is not None:
            return [("Enter", "resend"), (key("stop"), "cancel"), (key("edit"), "earlier question")]
        if screen.steps:
            return [("Enter", "send"), (key("regenerate"), "retry"), (key("edit"), "edit")]
        return [("Enter", "send"), ("Ctrl+J", "new line")]


def _choices(ways: int) -> list[tuple[str, str]]:
    if not ways:
        return []
    keys = dict.fromkeys((key_label(PANEL_KEYS[0]), key_label(PANEL_KEYS[ways - 1])))
    return [("–".join(keys), "choose")]
