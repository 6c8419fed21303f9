"""The latency of each decode step as a picture, and as one line of block characters.

Draws values; knows neither model nor clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from q35chat.bench.measure import DecodeRun

_BLOCKS = "▁▂▃▄▅▆▇█"
_SIZE, _MARGINS = (960, 540), (70, 24, 24, 56)
_INK, _GRID, _PAPER = "#22262b", "#dde1e6", "#ffffff"
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#0e7490")


def latencies(rounds: Sequence[DecodeRun]) -> list[float]:
    """The median over the rounds, step by step; rounds are equally long."""
    steps = zip(*(round_.wall_ms for round_ in rounds), strict=True)
    return [statistics.median(step) for step in steps]


def blocks(values: Sequence[float], width: int = 64) -> str:
    """`values` on one line of at most `width` characters, the lowest bar for the fastest step.

    Where a character stands for several steps it shows the slowest.
    """
    if not values:
        return ""
    group = -(-len(values) // width)
    shown = [max(values[start : start + group]) for start in range(0, len(values), group)]
    low, high = min(shown), max(shown)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in shown)


def picture(series: Mapping[str, Sequence[float]], title: str) -> Image.Image:
    """A chart with one line a series: step number to the right, milliseconds up, from zero."""
    image = Image.new("RGB", _SIZE, _PAPER)
    canvas = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=15)
    area = _Area.of(series)
    canvas.text((area.left, 10), title, fill=_INK, font=font)
    _axes(canvas, font, area)
    for number, (name, values) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(area.x(step), area.y(value)) for step, value in enumerate(values)]
        if len(points) == 1:
            x, y = points[0]
            canvas.ellipse((x - 2, y - 2, x + 2, y + 2), fill=colour)
        canvas.line(points, fill=colour, width=2)
        place = area.left + 8, area.bottom - 22 * (len(series) - number)
        canvas.text(place, name, fill=colour, font=font)
    return image


@dataclass(frozen=True, slots=True)
class _Area:
    """Where values lie in the picture: `steps` across, 0 to `top` milliseconds up."""

    steps: int
    top: float
    left: int = _MARGINS[0]
    right: int = _SIZE[0] - _MARGINS[1]
    upper: int = _MARGINS[2] + 16
    bottom: int = _SIZE[1] - _MARGINS[3]

    @classmethod
    def of(cls, series: Mapping[str, Sequence[float]]) -> _Area:
        highest = max((max(values) for values in series.values() if values), default=1.0)
        unit = _unit(highest)
        steps = max((len(values) for values in series.values()), default=1)
        return cls(max(steps, 2), math.ceil(highest * 1.05 / unit) * unit)

    def x(self, step: float) -> float:
        return self.left + (self.right - self.left) * step / (self.steps - 1)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.upper) * value / self.top


def _axes(
    canvas: ImageDraw.ImageDraw, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, area: _Area
) -> None:
    unit = _unit(area.top)
    for number in range(round(area.top / unit) + 1):
        y = area.y(number * unit)
        canvas.line((area.left, y, area.right, y), fill=_GRID)
        label = f"{number * unit:g}"
        canvas.text((area.left - 10, y), label, fill=_INK, font=font, anchor="rm")
    unit = max(1.0, _unit(area.steps))
    for number in range(math.floor((area.steps - 1) / unit) + 1):
        x = area.x(number * unit)
        label = f"{number * unit:g}"
        canvas.text((x, area.bottom + 8), label, fill=_INK, font=font, anchor="ma")
    middle = (area.left + area.right) / 2
    below = area.bottom + 30
    canvas.text((middle, below), "decode step", fill=_INK, font=font, anchor="ma")
    canvas.text((10, area.upper - 6), "ms", fill=_INK, font=font)


def _unit(highest: float) -> float:
    """A round distance that divides `highest` into about five."""
    power = 10.0 ** math.floor(math.log10(max(highest, 1e-6) / 5))
    return min((factor * power for factor in (1, 2, 5, 10)), key=lambda u: abs(highest / u - 5))
