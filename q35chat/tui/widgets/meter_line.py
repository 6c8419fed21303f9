"""The meters on one line, for screens too narrow for the side panel."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from q35chat.tui.meter import Progress, Reading
from q35chat.tui.text import count, rate, seconds
from q35chat.tui.widgets.capacity_bar import COLOURS, SIGNS, bar_content
from q35chat.tui.widgets.latency_graph import spark

_DIM = "$foreground 60%"


def line(reading: Reading, width: int) -> Content:
    """As much as fits: capacity, then progress or speed, then the graph."""
    capacity = reading.capacity
    if not capacity.total:
        return Content.styled("loading the model…", _DIM)
    bar = 14 if width < 90 else 24
    free = f" {count(capacity.free)} free" if width >= 50 else ""
    parts = [
        Content.assemble(
            bar_content(capacity, bar),
            (f" {SIGNS[capacity.level]}{capacity.fraction:.0%}", f"{COLOURS[capacity.level]} bold"),
            (free, _DIM),
        )
    ]
    if reading.progress is not None:
        parts.append(_progress(reading.progress))
    elif reading.made:
        parts.append(Content.styled(rate(reading.tokens_per_s), "$success bold"))
        parts.append(spark(reading, 12))
        parts.append(Content.styled(f"p50 {reading.p50:.0f} p95 {reading.p95:.0f} ms", _DIM))
    elif reading.model is not None:
        parts.append(Content.styled(f"{reading.model.name} · {reading.model.precision}", _DIM))
    return _fit(parts, width)


def _progress(progress: Progress) -> Content:
    if not progress.total:
        return Content.styled(progress.label + "…", "$accent")
    left = "" if not progress.eta_s else f" · {seconds(progress.eta_s)} left"
    speed = f" · {rate(progress.tokens_per_s)}" if progress.tokens_per_s else ""
    return Content.assemble(
        (f"{progress.label} {progress.fraction:.0%}", "$accent bold"), (speed + left, _DIM)
    )


def _fit(parts: list[Content], width: int) -> Content:
    shown = parts[0]
    for part in parts[1:]:
        if shown.cell_length + 3 + part.cell_length > width:
            break
        shown = Content.assemble(shown, "   ", part)
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
