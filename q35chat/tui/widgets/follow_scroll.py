"""A scrolling box that stays at its end while the reader is there, and only then."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.geometry import Size


class FollowScroll(VerticalScroll, can_focus=False):
    """Follows growing content from the end; a reader who scrolls up is left alone."""

    _bar_at = 0.0

    @property
    def following(self) -> bool:
        """Whether new content will be scrolled to."""
        return self.is_anchored and not self._anchor_released

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.anchor()

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
