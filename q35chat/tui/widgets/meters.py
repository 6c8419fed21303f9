"""The meters, beside the conversation on wide screens and on one line on others.

They draw a `Reading` and compute nothing: capacity told apart by colour and by shape, the last
steps' latency as columns of eighth blocks, speed, progress and model.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive, var
from textual.widget import Widget
from textual.widgets import Static

from q35chat.text import pluralise
from q35chat.tui.chat.meter import SHOWN_STEPS, Capacity, Level, Reading, WaitProgress
from q35chat.tui.text import count, millis, model_facts, packed, rate, seconds

USED: Final = "█"
TURN: Final = "▒"
FREE: Final = "·"
COLOURS: Final[dict[Level, str]] = {"normal": "$primary", "warning": "$warning", "full": "$error"}
SIGNS: Final[dict[Level, str]] = {"normal": "", "warning": "▲ ", "full": "■ "}

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_DIM: Final = "$foreground 60%"
_WIDTH: Final = 32
_GAP: Final = "   "
_NARROWEST_GRAPH, _WIDEST_GRAPH = 4, 12


def bar_cells(capacity: Capacity, width: int) -> tuple[int, int, int]:
    """Cells for used, this turn and free; what exists gets a cell where there is room for it."""
    if not capacity.total or width <= 0:
        return 0, 0, max(0, width)
    parts = (capacity.kept, capacity.turn, capacity.free)
    whole = max(1, sum(parts))
    cells = [max(1, round(width * part / whole)) if part else 0 for part in parts]
    while sum(cells) != width:
        largest = cells.index(max(cells))
        cells[largest] += 1 if sum(cells) < width else -1
    return cells[0], cells[1], cells[2]


def bar_content(capacity: Capacity, width: int) -> Content:
    """The bar on one line."""
    kept, turn, free = bar_cells(capacity, width)
    return Content.assemble(
        (USED * kept, COLOURS[capacity.level]),
        (TURN * turn, "$accent"),
        (FREE * free, "$foreground 40%"),
    )


class CapacityBar(Widget):
    """The bar over its whole width, two lines tall."""

    capacity = reactive(Capacity())

    def render(self) -> Content:
        """Two equal lines."""
        line = bar_content(self.capacity, self.content_size.width)
        return Content("\n").join([line] * max(1, self.content_size.height))


def columns(steps: tuple[float, ...], first_step: int, width: int) -> list[float]:
    """The slowest step of each group; fixed by step number, so nothing shimmers."""
    if width <= 0 or not steps:
        return []
    group = -(-SHOWN_STEPS // width)
    slowest: dict[int, float] = {}
    for number, value in enumerate(steps, start=first_step):
        slowest[number // group] = max(value, slowest.get(number // group, 0.0))
    return list(slowest.values())[-width:]


def glyphs(values: list[float], top: float, height: int) -> list[str]:
    """One string of `height` characters per column, bottom first."""
    result: list[str] = []
    for value in values:
        eighths = max(1, min(8 * height, round(8 * height * value / top))) if top > 0 else 0
        full, rest = divmod(eighths, 8)
        result.append(("█" * full + _EIGHTHS[rest])[:height].ljust(height))
    return result


def scale(reading: Reading) -> float:
    """The latency at the top of the graph: room above p95, whatever one outlier says."""
    return max(reading.p95 * 1.4, reading.p50 * 2)


def spark(reading: Reading, width: int) -> Content:
    """The graph on one line."""
    values = columns(reading.steps, reading.first_step, width)
    text = "".join(glyphs(values, scale(reading), 1))
    return Content.styled(text.rjust(width), "$secondary")


class LatencyGraph(Widget):
    """The graph over its whole box; columns slower than p95 stand out."""

    reading = reactive(Reading())

    def render(self) -> Content:
        """The columns, line by line from the top; a dotted base line where there is none yet."""
        width, height = self.content_size
        values = columns(self.reading.steps, self.reading.first_step, width)
        if not values:
            blank = [Content("")] * (height - 1)
            return Content("\n").join([*blank, Content.styled("·" * width, "$foreground 25%")])
        drawn = glyphs(values, scale(self.reading), height)
        looks = ["$warning" if value > self.reading.p95 else "$secondary" for value in values]
        pad = " " * (width - len(drawn))
        rows = (zip((glyph[row] for glyph in drawn), looks, strict=True)
                for row in reversed(range(height)))  # fmt: skip
        return Content("\n").join([Content.assemble(pad, *row) for row in rows])


def capacity_head(reading: Reading) -> Content:
    """The share in use, with a sign from 90 % on."""
    capacity = reading.capacity
    if not capacity.total:
        return Content.styled("CAPACITY", f"{_DIM} bold")
    share = f"{SIGNS[capacity.level]}{_about(reading)}{capacity.fraction:.0%}"
    return Content.assemble(
        ("CAPACITY".ljust(_WIDTH - len(share)), f"{_DIM} bold"),
        (share, f"{COLOURS[capacity.level]} bold"),
    )


def capacity_legend(reading: Reading) -> Content:
    """Used, this turn and free, each with its mark; together they are the total, which is known
    with the model; the lines below stay where they are."""
    capacity = reading.capacity
    if not capacity.total:
        return Content.styled("no model yet\n\n", _DIM)
    last = (FREE, "$foreground 40%", capacity.free, f"free of {count(capacity.total)}")
    if capacity.over:
        last = ("✗", "$error", capacity.over, f"over {count(capacity.total)}")
    rows = (
        (USED, COLOURS[capacity.level], capacity.kept, "used"),
        (TURN, "$accent", capacity.turn, "this turn"),
        last,
    )
    return Content("\n").join(
        Content.assemble(
            (mark, colour), (f" {_about(reading) + count(slots):>7} ", "bold"), (label, _DIM)
        )
        for mark, colour, slots, label in rows
    )


def _about(reading: Reading) -> str:
    """Before a count that is only estimated."""
    return "≈" if reading.model is not None and reading.model.estimated else ""


def _remote(reading: Reading) -> bool:
    """Whether a server answers, of whose steps only the arrival of tokens is known."""
    return reading.model is not None and bool(reading.model.remote)


def step_head(reading: Reading) -> Content:
    """The title of the latency graph and how many steps it shows."""
    shown = f"last {len(reading.steps)}" if reading.steps else ""
    title = "BETWEEN TOKENS" if _remote(reading) else "STEP LATENCY"
    return Content.assemble((title.ljust(_WIDTH - len(shown)), f"{_DIM} bold"), (shown, _DIM))


def step_legend(reading: Reading) -> Content:
    """p50 and p95; in detail how much of a step the runtime takes, where that is known."""
    if not reading.steps:
        return Content.styled("no tokens yet" if _remote(reading) else "no steps yet", _DIM)
    shares = _pair("p50", millis(reading.p50), "p95", millis(reading.p95))
    if not reading.details:
        return shares
    if _remote(reading):
        mean = Content.styled(f"mean {millis(reading.wall)}, as they arrive", _DIM)
        return Content("\n").join([shares, mean])
    inside = reading.predict / reading.wall if reading.wall else 0.0
    host = max(0.0, reading.wall - reading.predict)
    return Content("\n").join(
        [
            shares,
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
            (f"  {pluralise(reading.made, 'token')}", _DIM),
        ),
        Content.assemble((first, "bold"), (" to the first token", _DIM)),
    ]
    if reading.route:
        rows += [Content.styled(line, _DIM) for line in wrap(f"read by {reading.route}", _WIDTH)]
    return Content("\n").join(rows)


def progress_rows(progress: WaitProgress, width: int) -> Content:
    """What is read now: a bar, percentage, speed, time left."""
    if not progress.total:
        return Content.styled(_unmeasured(progress), "$accent")
    numbers = f"{count(progress.done)} of {count(progress.total)}"
    if progress.reckoned:
        numbers = "by the time of earlier ones"
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


def _unmeasured(progress: WaitProgress) -> str:
    """What is done, and after a second for how long already."""
    spent = f" {progress.spent_s:.0f} s" if progress.spent_s >= 1 else ""
    return f"{progress.label}…{spent}"


def progress_bar(progress: WaitProgress, width: int) -> Content:
    """Done in heavy, the rest in light."""
    done = round(width * progress.fraction)
    return Content.assemble(("━" * done, "$accent"), ("─" * (width - done), "$foreground 40%"))


def model_rows(reading: Reading) -> Content:
    """Target, precision and device; the title has the name."""
    model = reading.model
    if model is None:
        return Content.styled("not loaded yet", _DIM)
    lines = packed(model_facts(model), _WIDTH, " · ")
    return Content("\n").join([Content.styled(line, _DIM) for line in lines])


def _pair(name: str, value: str, other_name: str, other: str) -> Content:
    left = f"{name} {value}"
    return Content.assemble(
        (f"{name} ", _DIM), (value, "bold"), " " * max(1, 17 - len(left)),
        (f"{other_name} ", _DIM), (other, "bold"),
    )  # fmt: skip


class Meters(Vertical):
    """The side panel. Draws the newest reading, once it is on screen."""

    reading = var(Reading(), init=False)

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

    def watch_reading(self) -> None:
        """Draw it where there is room for it."""
        if self.display:
            self.on_show()

    def on_show(self) -> None:
        """Draw what could not be seen before."""
        reading, progress = self.reading, self.reading.progress
        self.query_one(CapacityBar).capacity = reading.capacity
        self.query_one(LatencyGraph).reading = reading
        self._put("#capacity-head", capacity_head(reading))
        self._put("#capacity-legend", capacity_legend(reading))
        self._put("#step-head", step_head(reading))
        self._put("#step-legend", step_legend(reading))
        self._put("#speed", speed(reading))
        self._put("#model", model_rows(reading))
        self.query("#progress-head, #progress").set(display=progress is not None)
        if progress is not None:
            self._put("#progress", progress_rows(progress, _WIDTH))

    def _put(self, selector: str, content: Content) -> None:
        static = self.query_one(selector, Static)
        if static.content != content:
            before, now = (str(it).count("\n") for it in (static.content, content))
            static.update(content, layout=before != now)


def line(reading: Reading, width: int) -> Content:
    """As much as fits: capacity, then progress, the draft, or speed and steps."""
    capacity = reading.capacity
    if not capacity.total:
        return Content.styled("no model yet", _DIM)
    share = f" {SIGNS[capacity.level]}{_about(reading)}{capacity.fraction:.0%}"
    bar = bar_content(capacity, 14 if width < 90 else 24)
    head = Content.assemble(bar, (share, f"{COLOURS[capacity.level]} bold"))
    if reading.progress is not None:
        return _fit(_fit(head, _progress(reading.progress), width, gap=" · "),
                    [_free(capacity)], width, first=_GAP)  # fmt: skip
    if (reading.made and not capacity.turn) or reading.running:
        return _running(head, reading, width)
    return _fit(head, _parts(capacity), width, gap=" · ")


def _parts(capacity: Capacity) -> list[Content]:
    """Used, this turn and free in words, for a draft or before the first answer."""
    turn = [Content.styled(f"{count(capacity.turn)} this turn", "$accent")] if capacity.turn else []
    if capacity.over:
        end = Content.styled(f"{count(capacity.over)} over {count(capacity.total)}", "$error")
    else:
        end = Content.styled(f"{count(capacity.free)} free of {count(capacity.total)}", _DIM)
    return [Content.styled(f"{count(capacity.kept)} used", _DIM), *turn, end]


def _free(capacity: Capacity) -> Content:
    return Content.styled(f"{count(capacity.free)} free", _DIM)


def _running(head: Content, reading: Reading, width: int) -> Content:
    """The numbers first; the graph takes the room they leave, and what is left after it tells the
    runtime's share of a step."""
    speed = Content.styled(rate(reading.tokens_per_s), "$success bold")
    numbers = _fit(head, [_free(reading.capacity), speed], width)
    if not reading.steps:
        return numbers
    p50, p95 = (f"{it:.1f}" if it < 10 else f"{it:.0f}" for it in (reading.p50, reading.p95))
    tail = [Content.styled(f"p50 {p50} p95 {p95} ms", _DIM)]
    room = width - _fit(numbers, tail, width, first=_GAP).cell_length - len(_GAP)
    if room >= _NARROWEST_GRAPH:
        tail.insert(0, spark(reading, min(room, _WIDEST_GRAPH)))
    if reading.details and reading.wall and not _remote(reading):
        share = f"{reading.predict / reading.wall:.0%} runtime"
        tail.append(Content.styled(share, _DIM))
    return _fit(numbers, tail, width, first=_GAP)


def _progress(progress: WaitProgress) -> list[Content]:
    if not progress.total:
        return [Content.styled(_unmeasured(progress), "$accent")]
    share = Content.styled(f"{progress.label} {progress.fraction:.0%}", "$accent bold")
    speed = rate(progress.tokens_per_s) if progress.tokens_per_s else ""
    left = f"{seconds(progress.eta_s)} left" if progress.eta_s else ""
    return [share, *(Content.styled(words, _DIM) for words in (speed, left) if words)]


def _fit(
    head: Content, parts: list[Content], width: int, gap: str = _GAP, first: str = "  "
) -> Content:
    shown = head
    for number, part in enumerate(parts):
        between = gap if number else first
        if shown.cell_length + len(between) + part.cell_length > width:
            break
        shown = Content.assemble(shown, (between, _DIM), part)
    return shown


class MeterLine(Widget):
    """One line under the conversation."""

    reading = reactive(Reading())

    def render(self) -> Content:
        """The line at the present width."""
        return line(self.reading, self.content_size.width)
