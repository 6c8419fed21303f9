"""A line that is said in as many words as fit."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget


class FittingLine(Widget):
    """The first of its wordings that fits its width on one line; else the last, wrapped."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._wordings: tuple[Content, ...] = (Content(""),)

    def show(self, *wordings: Content) -> None:
        """Say something else; the best wording first."""
        if wordings != self._wordings:
            self._wordings = wordings
            self.refresh(layout=True)

    def _at(self, width: int) -> Content:
        fitting = (words for words in self._wordings if words.cell_length <= width)
        return next(fitting, self._wordings[-1])

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """One line, or as many as the last wording takes; a layout may ask for no width at all."""
        return self._at(width).get_height({}, width) if width > 0 else 1

    def render(self) -> Content:
        """The wording for the present width."""
        return self._at(self.content_size.width)
