"""The meters beside the conversation on wide screens. Draws a `Reading`; computes nothing."""

from __future__ import annotations

from textwrap import wrap
from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from q35chat.counting import counted
from q35chat.tui.chat.meter import Progress, Reading
from q35chat.tui.text import count, millis, model_facts, one_line, packed, rate, seconds
from q35chat.tui.widgets.capacity_bar import COLOURS, FREE, SIGNS, TURN, USED, CapacityBar
from q35chat.tui.widgets.latency_graph import LatencyGraph

_DIM: Final = "$foreground 60%"
_WIDTH: Final = 32


def capacity_head(reading: Reading) -> Content:
    """The share in use, with a sign from 90 % on."""
    capacity = reading.capacity
    if not capacity.total:
        return Content.styled("CAPACITY", f"{_DIM} bold")
    share = f"{SIGNS[capacity.level]}{capacity.fraction:.0%}"
    return Content.assemble(
        ("CAPACITY".ljust(_WIDTH - len(share)), f"{_DIM} bold"),
        (share, f"{COLOURS[capacity.level]} bold"),
    )


def capacity_legend(reading: Reading) -> Content:
    """Used, this turn and free, each with its mark; together they are the total."""
    capacity = reading.capacity
    last = (FREE, "$foreground 40%", capacity.free, f"free of {count(capacity.total)}")
    if capacity.over:
        last = ("✗", "$error", capacity.over, f"over {count(capacity.total)}")
    rows = (
        (USED, COLOURS[capacity.level], capacity.kept, "used"),
        (TURN, "$accent", capacity.turn, "this turn"),
        last,
    )
    return Content("\n").join(
        Content.assemble((mark, colour), (f" {count(slots):>7} ", "bold"), (label, _DIM))
        for mark, colour, slots, label in rows
    )


def step_head(reading: Reading) -> Content:
    """The title of the latency graph and how many steps it shows."""
    shown = f"last {len(reading.steps)}" if reading.steps else ""
    return Content.assemble(
        ("STEP LATENCY".ljust(_WIDTH - len(shown)), f"{_DIM} bold"), (shown, _DIM)
    )


def step_legend(reading: Reading) -> Content:
    """p50 and p95, and how much of a step the runtime takes."""
    if not reading.steps:
        return Content.styled("no steps yet", _DIM)
    inside = reading.predict / reading.wall if reading.wall else 0.0
    host = max(0.0, reading.wall - reading.predict)
    return Content("\n").join(
        [
            _pair("p50", millis(reading.p50), "p95", millis(reading.p95)),
            _pair("predict", millis(reading.predict), "wall", millis(reading.wall)),
            Content.styled(f"{inside:.0%} runtime + {millis(host)} host", _DIM),
        ]
    )


def speed(reading: Reading) -> Content:
    """Tokens per second, tokens made, time to the first token, and how the prompt was read."""
    if not reading.made:
        return Content.styled("–", _DIM)
    first = "–" if reading.first_token_s is None else seconds(reading.first_token_s)
    rows = [
        Content.assemble(
            (rate(reading.tokens_per_s), "$success bold"),
            (f"  {counted(reading.made, 'token')}", _DIM),
        ),
        Content.assemble((first, "bold"), (" to the first token", _DIM)),
    ]
    if reading.route:
        rows += [Content.styled(line, _DIM) for line in wrap(f"read by {reading.route}", _WIDTH)]
    return Content("\n").join(rows)


def progress_rows(progress: Progress, width: int) -> Content:
    """What is read now: a bar, percentage, speed, time left."""
    if not progress.total:
        return Content.styled(progress.label + "…", "$accent")
    numbers = f"{count(progress.done)} of {count(progress.total)}"
    if progress.tokens_per_s:
        numbers += f" · {rate(progress.tokens_per_s)}"
    left = "" if not progress.eta_s else f" · {seconds(progress.eta_s)} left"
    return Content("\n").join(
        [
            Content.assemble((f"{progress.label} {progress.fraction:.0%}", "bold"), (left, _DIM)),
            progress_bar(progress, width),
            Content.styled(numbers, _DIM),
        ]
    )


def progress_bar(progress: Progress, width: int) -> Content:
    """Done in heavy, the rest in light."""
    done = round(width * progress.fraction)
    return Content.assemble(("━" * done, "$accent"), ("─" * (width - done), "$foreground 40%"))


def model_rows(reading: Reading) -> Content:
    """Model, target, precision and device."""
    model = reading.model
    if model is None:
        return Content.styled("not loaded yet", _DIM)
    return Content("\n").join(
        [
            Content.styled(one_line(model.name, _WIDTH), "bold"),
            *(Content.styled(line, _DIM) for line in packed(model_facts(model), _WIDTH, " · ")),
        ]
    )


def _lines(content: object) -> int:
    return str(content).count("\n")


def _pair(name: str, value: str, other_name: str, other: str) -> Content:
    left = f"{name} {value}"
    return Content.assemble(
        (f"{name} ", _DIM), (value, "bold"), " " * max(1, 17 - len(left)),
        (f"{other_name} ", _DIM), (other, "bold"),
    )  # fmt: skip


class Meters(Vertical):
    """The side panel. Draws the newest reading, once it is on screen."""

    def __init__(self) -> None:
        super().__init__()
        self._reading = Reading()

    def compose(self) -> ComposeResult:
        """Capacity, progress while reading, step latency, speed, model."""
        yield Static(id="capacity-head")
        yield CapacityBar(id="capacity-bar")
        yield Static(id="capacity-legend")
        yield Static("PROGRESS", id="progress-head", classes="head")
        yield Static(id="progress")
        yield Static(id="step-head", classes="head")
        yield LatencyGraph(id="latency")
        yield Static(id="step-legend")
        yield Static("SPEED", classes="head")
        yield Static(id="speed")
        yield Static("MODEL", classes="head")
        yield Static(id="model")

    def show(self, reading: Reading) -> None:
        """Draw a reading."""
        self._reading = reading
        if self.display:
            self._draw(reading)

    def on_show(self) -> None:
        """The screen has room for it now."""
        self._draw(self._reading)

    def _draw(self, reading: Reading) -> None:
        self.query_one(CapacityBar).show(reading.capacity)
        self.query_one(LatencyGraph).show(reading)
        self._put("#capacity-head", capacity_head(reading))
        self._put("#capacity-legend", capacity_legend(reading))
        self._put("#step-head", step_head(reading))
        self._put("#step-legend", step_legend(reading))
        self._put("#speed", speed(reading))
        self._put("#model", model_rows(reading))
        reading_now = reading.progress is not None
        self.query_one("#progress-head").display = reading_now
        self.query_one("#progress").display = reading_now
        if reading.progress is not None:
            self._put("#progress", progress_rows(reading.progress, _WIDTH))

    def _put(self, selector: str, content: Content) -> None:
        static = self.query_one(selector, Static)
        if static.content != content:
            static.update(content, layout=_lines(static.content) != _lines(content))
