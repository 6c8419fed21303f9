"""The one main screen: shows the session and the draft, and wires keys and clicks to actions.

Owns the widgets; what follows what the user did is decided in `tui.chat`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from q35chat.chat.text_files import TextFile
from q35chat.chat.workspace import Workspace
from q35chat.tui.application import application, key_of
from q35chat.tui.chat.chat_actions import ChatActions
from q35chat.tui.chat.draft import NEW, Draft
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.chat.host import Host
from q35chat.tui.chat.loading import Loader
from q35chat.tui.chat.recovery import Recovery
from q35chat.tui.chat.session import Session
from q35chat.tui.chat.turn_actions import TurnActions
from q35chat.tui.chat.view import hints, model_state, obstacle, status, window_title
from q35chat.tui.commands import BY_ID, panel_bindings, screen_bindings
from q35chat.tui.sizes import HEIGHTS, WIDE
from q35chat.tui.widgets.bars import Hints, NoticeLine, TitleBar
from q35chat.tui.widgets.composer import Composer
from q35chat.tui.widgets.messages import Messages, Severity
from q35chat.tui.widgets.meters import MeterLine, Meters
from q35chat.tui.widgets.panel import Panel
from q35chat.tui.widgets.transcript import Transcript
from q35chat.tui.widgets.welcome import Welcome

_LATEST_S: Final = 0.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opening:
    """What the application was started with."""

    conversation_id: str | None = None
    images: tuple[Path, ...] = ()
    prompt: str = ""


class ChatScreen(Screen[None]):
    """Conversation, meters, composer."""

    BINDINGS = [*screen_bindings(), *panel_bindings()]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = HEIGHTS
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012

    def __init__(self, workspace: Workspace, opening: Opening, drafts: Drafts) -> None:
        super().__init__()
        self._opening = opening
        self._unpainted = False
        self._latest: Timer | None = None
        self.messages = Messages()
        self.transcript = transcript = Transcript()
        self.panel = panel = Panel()
        self.composer = Composer(self._submit, self._add_pictures)
        self.session = session = Session(workspace)
        host = Host(
            say=self.say,
            remark=self._remark,
            show=self._show,
            refresh=self._refresh_view,
            background=self._background,
            later=self.call_later,
            run=self.run_command,
        )
        send, queued = self._send, self._send_queued
        self.draft = draft = Draft(
            session, self.composer, drafts, host, self.set_timer, queued, self._file_too_large
        )
        self.loader = loader = Loader(session, draft, transcript, panel, host, queued)
        self._recovery = Recovery(session, draft, panel, self.messages, host, send, loader.restart)
        self.chats = ChatActions(
            session, draft, transcript, loader, host, partial(application, self)
        )
        self.turns = TurnActions(
            session,
            draft,
            transcript,
            panel,
            self.messages,
            loader,
            self._recovery,
            host,
            every=self.set_interval,
            spawn=partial(self.run_worker, group="end"),
            on_end=self.chats.turn_ended,
        )

    def compose(self) -> ComposeResult:
        """Title, conversation with meters beside it, composer, hints."""
        yield TitleBar()
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                with Vertical(id="above"):
                    yield Welcome()
                    yield self.transcript
                    yield NoticeLine(id="notice")
                    yield self.panel
                    yield MeterLine()
                    yield self.messages
                yield self.composer
            yield Meters()
        yield Hints()

    # -- the first paint

    def on_mount(self) -> None:
        """Show at once; load after the first paint."""
        self._show()
        if self._opening.prompt:
            self.draft.composer.editor.put(self._opening.prompt)
        elif not self._opening.conversation_id:
            self.draft.turn_to(NEW)
        self.draft.attach(self._opening.images)
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
            application(self).painted()
            self.loader.load(self._opening.conversation_id)

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
        self.session.stop()

    # -- what its parts ask of it

    def say(self, text: str, severity: Severity = "information", *, about: str = "") -> None:
        """A short message that goes away by itself, or with a newer one about the same."""
        self.notify(text, title=about, severity=severity, markup=False)

    def _remark(self, text: str) -> None:
        self.session.remark = text
        self._show()

    def _refresh_view(self) -> None:
        if not self.session.queued:
            self.session.remark = ""
        self._show()

    def _background(
        self,
        group: str,
        work: Callable[[], T],
        then: Callable[[T], object] | None = None,
        *,
        exclusive: bool = False,
    ) -> None:
        def run() -> None:
            found = work()
            if then is not None:
                self.call_later(then, found)

        self.run_worker(run, thread=True, exclusive=exclusive, group=group)

    async def _submit(self, text: str) -> None:
        await self.turns.submit(text)

    def _add_pictures(self, paths: Sequence[Path]) -> None:
        self.draft.attach(paths)

    async def _send(self) -> None:
        await self.turns.send()

    async def _file_too_large(self, file: TextFile) -> None:
        await self._recovery.file_too_large(file)

    async def _send_queued(self) -> None:
        await self.turns.send_queued()

    def _show(self) -> None:
        """Draw what the session and the draft are now. The meters that are not on screen have the
        numbers too, for when they are."""
        session, conversation = self.session, self.session.conversation
        bar, foot = self.query_one(TitleBar), self.query_one(Hints)
        bar.title = conversation.title if conversation is not None else ""
        bar.state = model_state(session)
        details = application(self).settings.details
        reading = replace(session.meter.reading(), details=details)
        application(self).name_window(window_title(session, reading))
        self.query_one(MeterLine).reading = reading
        self.query_one(Meters).reading = reading
        ways = len(self.panel.ways) if self.panel.display else None
        following = self.transcript.following
        key = partial(key_of, self)
        mine = hints(session, self.draft, key, ways=ways, following=following)
        foot.hints = (*mine, (key("palette"), "commands"))
        foot.always = ((key("help"), "help"), (key("quit"), "quit"))
        self.transcript.display = session.running or (
            conversation is not None and bool(conversation.summary or session.steps)
        )
        welcome = self.query_one(Welcome)
        welcome.display = not self.transcript.display
        if welcome.display:
            welcome.show(session, key("setup"), key("sessions"))
        self.query_one(NoticeLine).notice = session.notice
        model = session.model
        self.composer.editor.offer_pictures(model is None or model.pictures)
        self.composer.show_status(*status(session, self.draft))

    # -- keys and clicks

    async def action_command(self, command_id: str) -> None:
        """Run a command by key."""
        await self.run_command(command_id)

    async def run_command(self, command_id: str, argument: str = "") -> None:
        """Run a command of the table."""
        if why_not := obstacle(self.session, BY_ID[command_id].when):
            self.say(why_not)
            return
        name = f"do_{command_id}"
        owner = next(it for it in (self.turns, self.chats, self) if hasattr(it, name))
        await getattr(owner, name)(argument)

    async def do_meters(self, _: str) -> None:
        """All meters where one line of them is, and the other way round; narrow and wide screens
        each keep their way."""
        self.toggle_class("-panel-too" if self.has_class("-narrow") else "-line-only")
        self.call_after_refresh(self._show)

    async def do_details(self, _: str) -> None:
        """What a step is made of, on the meters, or no longer; for this and later runs."""
        application(self).choose_details(not application(self).settings.details)
        self._show()

    @on(Composer.Changed)
    def _changed(self) -> None:
        self.draft.changed()

    async def action_choose(self, index: int) -> None:
        """Take one of the ways a panel offers."""
        await self._recovery.choose(index)

    def on_resize(self) -> None:
        """The other meters may be on screen now."""
        self.call_after_refresh(self._show)

    def _select_all_in_widget(self, widget: Widget) -> None:
        """What is hidden is not selected."""
        super()._select_all_in_widget(widget)
        shown = {it: selection for it, selection in self.selections.items() if _is_shown(it)}
        self.selections = shown

    def on_click(self) -> None:
        """Typing always goes to the composer."""
        self.draft.composer.editor.focus()


def _is_shown(widget: Widget) -> bool:
    return all(node.display for node in widget.ancestors_with_self)
