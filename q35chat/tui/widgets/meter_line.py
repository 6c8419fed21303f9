"""The meters on one line, for screens too narrow for the side panel."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from q35chat.tui.chat.meter import Capacity, Progress, Reading
from q35chat.tui.text import count, rate, seconds
from q35chat.tui.widgets.capacity_bar import COLOURS, SIGNS, bar_content
from q35chat.tui.widgets.latency_graph import spark

_DIM = "$foreground 60%"
_GAP = "   "
_NARROWEST_GRAPH, _WIDEST_GRAPH = 4, 12


def line(reading: Reading, width: int) -> Content:
    """As much as fits: capacity, then progress, the draft, or speed and steps."""
    capacity = reading.capacity
    if not capacity.total:
        return Content.styled("no model yet", _DIM)
    share = f" {SIGNS[capacity.level]}{capacity.fraction:.0%}"
    bar = bar_content(capacity, 14 if width < 90 else 24)
    head = Content.assemble(bar, (share, f"{COLOURS[capacity.level]} bold"))
    if reading.progress is not None:
        return _fit(head, [_progress(reading.progress), _free(capacity)], width)
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
    percentiles = f"p50 {_digits(reading.p50)} p95 {_digits(reading.p95)} ms"
    tail = [Content.styled(percentiles, _DIM)]
    room = width - _fit(numbers, tail, width, first=_GAP).cell_length - len(_GAP)
    if room >= _NARROWEST_GRAPH:
        tail.insert(0, spark(reading, min(room, _WIDEST_GRAPH)))
    if reading.wall:
        share = f"{reading.predict / reading.wall:.0%} runtime"
        tail.append(Content.styled(share, _DIM))
    return _fit(numbers, tail, width, first=_GAP)


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _progress(progress: Progress) -> Content:
    if not progress.total:
        return Content.styled(progress.label + "…", "$accent")
    left = "" if not progress.eta_s else f" · {seconds(progress.eta_s)} left"
    speed = f" · {rate(progress.tokens_per_s)}" if progress.tokens_per_s else ""
    return Content.assemble(
        (f"{progress.label} {progress.fraction:.0%}", "$accent bold"), (speed + left, _DIM)
    )


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

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._reading = Reading()

    def show(self, reading: Reading) -> None:
        """Draw a reading, if it differs."""
        if reading != self._reading:
            self._reading = reading
            self.refresh()

    def render(self) -> Content:
        """The line at the present width."""
        return line(self._reading, self.content_size.width)
