"""Containers and a line that Textual lacks: rows that break, a box that follows its end,
remembered heights, and the wording that fits.
"""

from __future__ import annotations

from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.layout import ArrangeResult, Layout
from textual.layouts.horizontal import HorizontalLayout
from textual.reactive import reactive
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


class FollowScroll(VerticalScroll, can_focus=False):
    """Follows growing content from the end; a reader who scrolls up is left alone."""

    _bar_at = 0.0

    @property
    def following(self) -> bool:
        """Whether new content will be scrolled to."""
        return self.is_anchored and not self._anchor_released

    def release_anchor(self) -> None:
        """Stop following, where there is anything to scroll to."""
        if self.max_scroll_y > 0:
            super().release_anchor()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Take up following again when the reader moves down to the end."""
        super().watch_scroll_y(old_value, new_value)
        moved_down = new_value > old_value
        if moved_down and not self.following and new_value >= self.max_scroll_y - 1:
            self.call_later(self.anchor)

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Draw the scroll bar again where a layout has moved what is followed."""
        changed = super()._size_updated(size, virtual_size, container_size, layout)
        if self.scroll_y != self._bar_at:
            self._bar_at = self.scroll_y
            self.vertical_scrollbar.refresh()
        return changed


class CachedHeight(Widget):
    """Remembers its content height per width until something inside asks for a new layout.

    Without this, each line added to a long answer measures every block of the conversation.
    """

    _measured: tuple[tuple[int, int, int], int] | None = None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The height in lines; measured again after a change or at another width."""
        key = (width, self._layout_updates, self._nodes._updates)
        if self._measured is None or self._measured[0] != key:
            self._measured = (key, super().get_content_height(container, viewport, width))
        return self._measured[1]


class FittingLine(Widget):
    """The first of its wordings that fits its width on one line; else the last, wrapped."""

    wordings: reactive[tuple[Content, ...]] = reactive((Content(""),), layout=True)

    def _at(self, width: int) -> Content:
        fitting = (words for words in self.wordings if words.cell_length <= width)
        return next(fitting, self.wordings[-1])

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """One line, or as many as the last wording takes; a layout may ask for no width at all."""
        return self._at(width).get_height({}, width) if width > 0 else 1

    def render(self) -> Content:
        """The wording for the present width."""
        return self._at(self.content_size.width)
