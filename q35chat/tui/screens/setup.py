"""The way from a checkpoint to a model that answers: a form, the export, and what came of it.

Owns which of these is on screen. The exporter works in a thread; a timer that lives as long as
the export draws how it goes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Button, Input, Static

from q35chat.text import readable_size
from q35chat.tui.commands import panel_bindings
from q35chat.tui.exporting import (
    BundleWish,
    Estimate,
    Exporter,
    ExportJob,
    FoundBundle,
    MadeBundle,
    Occupied,
    Phase,
    Stopped,
)
from q35chat.tui.screens.confirm import ConfirmScreen
from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.tui.sizes import SHORT
from q35chat.tui.text import cause, clean, seconds, slots
from q35chat.tui.widgets.key_order import LatestQuery
from q35chat.tui.widgets.panel import SIGNS, Panel, Tone, Way
from q35chat.tui.widgets.pressable import Foot
from q35chat.tui.widgets.setup_form import SetupForm
from q35chat.tui.workers import attempt

FINISHING: Final = "finishing"
_NAME, _PERCENT = 12, 7
_LONGEST_BAR: Final = 40
_FULL, _EMPTY = "█", "░"
_RATE_FROM_S: Final = 1.0
T = TypeVar("T")
State = Literal["form", "looking", "running", "stopping", "made", "failed"]

_ENDS: Final = ("made", "failed")
_FRAME_S: Final = 0.1
_ROWS_AROUND, _FEW_ROWS_AROUND, _LEAST_ROWS = 8, 4, 4
_WIDEST, _BESIDE = 88, 6
_TITLE: Final = "Get a real model"
_LEAD: Final = "A checkpoint becomes a bundle for this machine, once; then offline."
_COLOURS: Final[dict[Tone, str]] = {"error": "$error", "warning": "$warning", "note": "$primary"}


class SetupScreen(Dialog[MadeBundle | None]):
    """Gives the bundle to open, or None."""

    BINDINGS = [  # noqa: RUF012
        Binding("enter", "go", "Go on", show=False),
        *panel_bindings(),
    ]

    def __init__(self, exporter: Exporter) -> None:
        super().__init__()
        self._exporter = exporter
        self._job: ExportJob | None = None
        self._wish: BundleWish | None = None
        self._room = LatestQuery()
        self._phases: deque[Phase] = deque()
        self._timer: Timer | None = None
        self._question: ConfirmScreen | None = None
        self.state: State = "form"
        self.form, self.progress, self.panel = SetupForm(), ExportProgress(), Panel()

    def compose(self) -> ComposeResult:
        """Form, progress or a panel, what is to be said about it, the keys."""
        with Vertical(classes="dialog"):
            yield Static(classes="dialog-title", id="setup-title", markup=False)
            yield Static(id="setup-lead", markup=False)
            with VerticalScroll(id="setup-body", can_focus=False):
                yield from (self.form, self.progress, self.panel)
            yield Static(id="setup-message", markup=False)
            with Horizontal(id="setup-foot"):
                yield Foot("")
                yield Button(id="setup-go", compact=True, variant="primary")

    def on_mount(self) -> None:
        """Start with the form."""
        self._show("form")
        self._ask_room()

    def on_resize(self) -> None:
        """What does not fit is scrolled; title, message and keys stay."""
        self._limit()

    def _limit(self) -> None:
        line, size = self.query_one("#setup-message", Static), self.size
        width = min(_WIDEST, size.width * 95 // 100) - _BESIDE
        said = line.get_content_height(size, size, width) + 1 if line.display else 0
        around = _ROWS_AROUND if size.height >= SHORT else _FEW_ROWS_AROUND
        rows = max(_LEAST_ROWS + 2, size.height * 95 // 100 - around)
        line.styles.max_height = rows - _LEAST_ROWS - 1
        self.query_one("#setup-body").styles.max_height = max(_LEAST_ROWS, rows - said)

    def on_unmount(self) -> None:
        """However the screen goes, nothing works on without it."""
        if self._job is not None:
            self._job.cancel()

    # -- what is on screen

    def _show(self, state: State) -> None:
        self.state = state
        self.form.display = state in {"form", "looking"}
        self.form.disabled = state == "looking"
        self.progress.display = state in {"running", "stopping"}
        if state not in _ENDS:
            self.panel.dismiss()
        title, lead = _TITLE, _LEAD
        if self._wish is not None and not self.form.display:
            wish = self._wish
            title = f"Export of {clean(wish.model)}"
            lead = f"{wish.precision} · {slots(wish.capacity)} · to {clean(str(wish.folder))}"
        self.query_one("#setup-title", Static).update(Content(title))
        self.query_one("#setup-lead", Static).update(Content(lead))
        self._show_keys()
        if state == "form" and (self.focused is None or not self.focused.display):
            self.form.query_one(Input).focus()

    def _show_keys(self) -> None:
        go = "Look up the sizes" if self.form.estimate is None else "Export"
        button = self.query_one("#setup-go", Button)
        button.label = f"{go} ⏎"
        button.display = self.state == "form"
        hints = {
            "form": "Tab next field · Esc close",
            "looking": "Esc stop",
            "running": "Esc stop",
            "stopping": "stopping…",
            "made": "Enter takes the first · Esc close",
            "failed": "Enter takes the first · Esc back",
        }
        self.query_one(Foot).say(hints[self.state])

    def _say(self, text: str, tone: Tone = "note") -> None:
        line = self.query_one("#setup-message", Static)
        line.display = bool(text)
        sign = (f"{SIGNS[tone]} ", f"{_COLOURS[tone]} bold")
        line.update(Content.assemble(sign, (clean(text), _COLOURS[tone])))
        self._limit()

    # -- the form

    @on(SetupForm.Changed)
    def _changed(self) -> None:
        self._room.drop()
        self._describe()

    def _describe(self) -> None:
        warning = self.form.refusal() or self.form.warning()
        self._say(warning, "warning")
        self._show_keys()

    @on(SetupForm.FolderChanged)
    def _folder_changed(self) -> None:
        self._say("")
        self._ask_room()

    def _ask_room(self) -> None:
        folder = self.form.folder
        question = self._room.ask(str(folder))

        def work() -> None:
            room, standing = self._exporter.room(folder), self._exporter.standing(folder)
            self.call_later(self._know_place, question, room, standing)

        self.run_worker(work, thread=True, exclusive=True, group="room")

    def _know_place(self, question: int, room: int, standing: FoundBundle | None) -> None:
        if not self._room.is_newest(question):
            return
        self.form.know_place(room, standing)
        if self.form.estimate is not None and self.state == "form":
            self._describe()
        self._room.arrived()

    # -- keys

    @on(Input.Submitted)
    @on(Button.Pressed)
    async def action_go(self) -> None:
        """The next step: look, export, or the first of the ways on."""
        if self.state in _ENDS:
            await self.action_choose(0)
        elif self.state == "form":
            try:
                wish = self.form.wish()
            except ValueError as problem:
                self._say(str(problem), "error")
                return
            if self.form.estimate is None:
                self._look(wish)
            else:
                self._say("Looking at the folder…")
                self._room.then(str(wish.folder), partial(self._export_where_room_is, wish))

    def _export_where_room_is(self, wish: BundleWish) -> None:
        if refusal := self.form.refusal():
            self._say(refusal, "error")
        elif self.state == "form":
            self._export(wish)

    def action_leave(self) -> None:
        """Stop what runs, or close."""
        if self.state == "looking" and self._job is not None:
            self._job.cancel()
        elif self.state == "running":
            self._ask("Stop the export?", "Nothing of it stays; what was downloaded is kept.",
                      "Stop")  # fmt: skip
        elif self.state == "failed":
            self._show("form")
        elif self.state in {"form", "made"}:
            self.dismiss(None)

    def asks_first(self) -> bool:
        """Whether the application must not be left yet: while an export runs this asks."""
        if self.state != "running":
            return False
        if self._question is None:
            self._ask("An export is running. Stop it and quit?", "Nothing of it stays.",
                      "Stop and quit", quits=True)  # fmt: skip
        return True

    def _ask(self, question: str, detail: str, yes: str, *, quits: bool = False) -> None:
        async def answered(stop: bool | None) -> None:
            self._question = None
            if stop and self.state == "running" and self._job is not None:
                self._show("stopping")
                self._job.cancel()
            if stop and quits:
                await self.app.action_quit()

        self._question = ConfirmScreen(question, detail, yes)
        self.app.push_screen(self._question, answered)

    async def action_choose(self, index: int) -> None:
        """Take one of the ways that the panel offers."""
        ways = self.panel.ways
        if index < len(ways):
            await ways[index].take()

    def _work(self, work: Callable[[], T], then: Callable[[T | Exception], object]) -> None:
        """Let the job do something in a thread, then go on with what came of it."""

        def run() -> None:
            self.call_later(then, attempt(work))

        self.run_worker(run, thread=True, group="export")

    # -- looking at a model

    def _look(self, wish: BundleWish) -> None:
        job = self._job = self._exporter.job()
        self._show("looking")
        self._say(f"Looking at {wish.model}…")

        def look() -> MadeBundle | Estimate:
            return self._exporter.bundle(wish.model) or job.estimate(wish)

        self._work(look, self._looked)

    async def _looked(self, found: MadeBundle | Estimate | Exception) -> None:
        self._job = None
        if isinstance(found, MadeBundle) and found.ready:  # nothing is left to export
            self._close(found)
            return
        if isinstance(found, MadeBundle):
            await self._made(found)
            return
        self._show("form")
        if isinstance(found, Exception):
            self.form.query_one(Input).focus()
            stopped = isinstance(found, Stopped)
            self._say(*(("Stopped", "note") if stopped else (cause(found), "error")))
            return
        self.form.know(found)
        self.form.query_one("#precision").focus()
        self._changed()
        if not (self.form.refusal() or self.form.warning()):
            self._say("Choose how exact and how long; Enter exports")

    # -- exporting

    def _export(self, wish: BundleWish) -> None:
        job = self._job = self._exporter.job()
        self._wish = wish
        cost = self.form.cost
        self._phases.clear()
        self.progress.begin(cost.parts if cost else ())
        self._say("")
        self._show("running")
        self._timer = self.set_interval(_FRAME_S, self._frame)
        self._work(partial(job.export, wish, self._phases.append), self._ended)

    def _frame(self) -> None:
        while self._phases:
            self.progress.take(self._phases.popleft())
        self.progress.draw()

    async def _ended(self, ended: MadeBundle | Exception) -> None:
        self._job = None
        if self._timer is not None:
            self._timer.stop()
        if self._question is not None and self.app.screen is self._question:
            self._question.dismiss(False)
        if isinstance(ended, Stopped):
            self._show("form")
            self._say("Stopped; nothing was written")
        elif isinstance(ended, Exception):
            await self._failed(ended)
        else:
            await self._made(ended)

    async def _failed(self, error: Exception) -> None:
        title = "The export failed"
        again = Way("Try again", partial(self._again, replacing=False))
        if isinstance(error, Occupied):
            title = "A bundle is there already"
            again = Way("Replace the bundle that is there", partial(self._again, replacing=True))
        ways = (Way("Back to the form", partial(self._show, "form")), again)
        await self.panel.show("error", title, cause(error), ways)
        self._show("failed")

    async def _made(self, made: MadeBundle) -> None:
        where = clean(str(made.folder))
        what = (
            f"{readable_size(made.size)} in {where}" if made.size else f"It was in {where} already"
        )
        then = "Next time" if made.ready else "Now make it ready for the NPU"
        later = Way("Later", self.action_leave)
        ways = (Way("Open it now", lambda: self._close(made)), later) if made.ready else (later,)
        text = f"{what}\n{then}: {made.command}"
        await self.panel.show("note", f"{made.model} is ready", text, ways)
        self._show("made")

    def _again(self, *, replacing: bool) -> None:
        if self._wish is not None:
            self._export(replace(self._wish, replace=replacing or self._wish.replace))


class ExportProgress(Static):
    """How an export goes: its phases, a bar for the one at work, bytes and the time left.

    Fed with phases as they change; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(markup=False, id="progress")
        self._clock = clock
        self._phases: dict[str, Phase] = {}
        self._since: dict[str, float] = {}

    def begin(self, expected: Sequence[tuple[str, int]]) -> None:
        """Start over; `expected` are the names and sizes of the phases to come."""
        self._phases = {name: Phase(name, 0, total) for name, total in expected}
        self._since = {}
        self.draw()

    def take(self, phase: Phase) -> None:
        """A phase went on, perhaps one that nobody expected. What came before it is over."""
        self._since.setdefault(phase.name, self._clock())
        for name, before in self._phases.items():
            if name == phase.name:
                break
            if name in self._since and not before.ended:
                self._phases[name] = Phase(name, before.total, before.total, ended=True)
        if phase.name not in self._phases:
            begun = {name: it for name, it in self._phases.items() if name in self._since}
            self._phases = begun | {phase.name: phase} | self._phases
        self._phases[phase.name] = phase

    def draw(self) -> None:
        """Show how it stands now."""
        self.update(progress_content(tuple(self._phases.values()), self._now(), self.size.width))

    def on_resize(self) -> None:
        """The bar has another length."""
        self.draw()

    def _now(self) -> tuple[str, float]:
        """The phase at work and how long it has been; empty before the first."""
        for name in reversed(self._phases):
            if name in self._since:
                return name, self._clock() - self._since[name]
        return "", 0.0


def progress_content(phases: Sequence[Phase], now: tuple[str, float], width: int) -> Content:
    """The phases, a line each, and what is known of the one that is at work for `now` seconds."""
    over = bool(phases) and all(phase.ended for phase in phases)
    lines = [_line(phase, phase.name == now[0], width) for phase in phases]
    lines.append(_waiting(FINISHING, at_work=over))
    working = next((phase for phase in phases if phase.name == now[0] and not phase.ended), None)
    lines += [Content(""), Content.styled(_facts(working, now[1], over), DIM)]
    return Content("\n").join(lines)


def _line(phase: Phase, at_work: bool, width: int) -> Content:
    name = clean(phase.name).ljust(_NAME)
    if phase.ended:
        done = readable_size(phase.total) if phase.total else ""
        return Content.assemble(("✓ ", "$success"), name, (done, DIM))
    if not at_work or not phase.total:
        return _waiting(phase.name, at_work)
    share = min(1.0, phase.done / phase.total)
    length = max(4, min(_LONGEST_BAR, width - 2 - _NAME - _PERCENT))
    full = round(share * length)
    return Content.assemble(
        ("▸ ", "$primary bold"),
        (name, "bold"),
        (_FULL * full, "$primary"),
        (_EMPTY * (length - full), "$foreground 30%"),
        (f"{share:.0%}".rjust(_PERCENT - 1), "bold"),
    )


def _waiting(name: str, at_work: bool) -> Content:
    if at_work:
        return Content.assemble(("▸ ", "$primary bold"), (clean(name), "bold"))
    return Content.styled(f"· {clean(name)}", DIM)


def _facts(phase: Phase | None, spent: float, over: bool) -> str:
    if over:
        return "writing everything to the disk and putting it in its place"
    if phase is None:
        return "starting"
    parts = [readable_size(phase.done)] if phase.done else []
    if phase.total:
        parts = [f"{readable_size(phase.done)} of {readable_size(phase.total)}"]
    if phase.done and spent > _RATE_FROM_S:
        rate = phase.done / spent
        parts.append(f"{readable_size(rate)}/s")
        if phase.total:
            parts.append(f"{seconds(max(0.0, phase.total - phase.done) / rate)} left")
    return " · ".join(parts)
