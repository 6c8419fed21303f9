"""An answer as Markdown, streamed in bounded pieces.

The newest piece is laid out again as it grows; a finished one is never touched again, so a
token costs the same at the end of a long answer as at its start.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from q35chat.tui.markdown_layout import lay_out
from q35chat.tui.segments import pieces
from q35chat.tui.text import clean
from q35chat.tui.widgets.steady import SteadyHeight


class Piece(Widget):
    """A part of an answer in one widget; laid out once per text and width."""

    def __init__(self, source: str, *, goes_on: bool = False) -> None:
        super().__init__()
        self._source = source
        self._laid_out: tuple[int, Content, int] | None = None
        self.set_class(goes_on, "-goes-on")

    @property
    def source(self) -> str:
        """The Markdown shown."""
        return self._source

    def update(self, source: str, *, goes_on: bool = False) -> None:
        """Show another text; `goes_on` when the next piece is the rest of the same block."""
        self.set_class(goes_on, "-goes-on")
        if source != self._source:
            before = self._laid_out
            self._source, self._laid_out = source, None
            same_height = before is not None and self._at(before[0])[2] == before[2]
            self.refresh(layout=not same_height)

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002
        """As wide as there is room."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """The number of lines at this width."""
        return self._at(width)[2]

    def render(self) -> Content:
        """The lines at the present width."""
        return self._at(self.content_size.width)[1]

    def _at(self, width: int) -> tuple[int, Content, int]:
        if self._laid_out is None or self._laid_out[0] != width:
            lines = lay_out(self._source, width)
            self._laid_out = (width, Content("\n").join(lines), len(lines))
        return self._laid_out


class Answer(SteadyHeight, Vertical):
    """The pieces of one answer, in order."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = clean(text)
        parts = pieces(self._text) if self._text else []
        self._pieces = [Piece(source, goes_on=goes_on) for source, goes_on in parts]

    def compose(self) -> ComposeResult:
        """The pieces of the text so far."""
        yield from self._pieces

    @property
    def text(self) -> str:
        """All text given so far, cleaned."""
        return self._text

    def write(self, fragment: str) -> None:
        """Add text at the end."""
        if not fragment:
            return
        cleaned = clean(fragment)
        self._text += cleaned
        before = self._pieces[-1] if self._pieces else None
        parts = pieces((before.source if before else "") + cleaned)
        if before is not None:
            (source, goes_on), *parts = parts
            before.update(source, goes_on=goes_on)
        fresh = [Piece(source, goes_on=goes_on) for source, goes_on in parts]
        self._pieces += fresh
        if fresh:
            self.mount_all(fresh)
