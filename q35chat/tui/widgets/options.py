"""A list to choose from, which has keys also while it has no place on the screen."""

from __future__ import annotations

from typing import Literal

from textual.widgets import OptionList


class Options(OptionList):
    """Textual's, but the chosen line stays in sight when the list has fewer rows, and a page goes
    nowhere where no line is laid out: the terminal may have no room for one, or not have drawn it
    yet."""

    def on_resize(self) -> None:
        """Go to the chosen line again."""
        self.call_after_refresh(self.scroll_to_highlight)

    def _move_page(self, direction: Literal[-1, 1]) -> None:
        if (self.highlighted or 0) in self._index_to_line:
            super()._move_page(direction)
