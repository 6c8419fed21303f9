"""Widgets in rows: as many beside each other as there is room for, the others below."""

from __future__ import annotations

from textual.containers import Horizontal
from textual.geometry import Size
from textual.layout import ArrangeResult, Layout
from textual.layouts.horizontal import HorizontalLayout
from textual.widget import Widget


class _Flow(HorizontalLayout):
    """As a row, but broken before each widget that no longer fits; none is wider than the row."""

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Where each child lies."""
        placements: ArrangeResult = []
        left = top = bottom = 0
        for placement in super().arrange(parent, children, size, greedy):
            region = placement.region
            if region.right - left > size.width and region.x > left:
                left, top = region.x, bottom
            region = region.translate((-left, top))
            region = region.crop_size((size.width, region.height))
            bottom = max(bottom, region.bottom + placement.margin.bottom)
            placements.append(placement._replace(region=region))
        return placements


class Flow(Horizontal):
    """Its children in rows."""

    _rows = _Flow()

    @property
    def layout(self) -> Layout:
        """The rows: a name in a stylesheet can mean none of them."""
        return self._rows
