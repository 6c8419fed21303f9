"""Containers whose height is asked for at every layout but changes only when they change."""

from __future__ import annotations

from textual.geometry import Size
from textual.widget import Widget


class SteadyHeight(Widget):
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
