"""The last steps' latency as columns of eighth blocks, newest at the right."""

from __future__ import annotations

from typing import Final

from textual.content import Content
from textual.widget import Widget

from q35chat.tui.chat.meter import SHOWN_STEPS, Reading

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"


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

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._reading = Reading()

    def show(self, reading: Reading) -> None:
        """Draw other steps, if they differ."""
        changed = reading.steps != self._reading.steps
        self._reading = reading
        if changed:
            self.refresh()

    def render(self) -> Content:
        """The columns, line by line from the top; a dotted base line where there is none yet."""
        width, height = self.content_size
        values = columns(self._reading.steps, self._reading.first_step, width)
        if not values:
            blank = [Content("")] * (height - 1)
            return Content("\n").join([*blank, Content.styled("·" * width, "$foreground 25%")])
        drawn = glyphs(values, scale(self._reading), height)
        pad = " " * (width - len(drawn))
        lines = [
            Content.assemble(
                pad,
                *(
                    (glyph[row], "$warning" if value > self._reading.p95 else "$secondary")
                    for glyph, value in zip(drawn, values, strict=True)
                ),
            )
            for row in reversed(range(height))
        ]
        return Content("\n").join(lines)
