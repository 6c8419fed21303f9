"""What stands under a turn: how it ended, what was noticed, its numbers, which version it ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from q35chat.tui.markdown.wrapping import breaks
from q35chat.tui.text import packed

_DIM = "$foreground 55%"


def foot_lines(
    mark: str, note: str, numbers: Sequence[str], place: str, width: int
) -> list[Content]:
    """The lines at this width; numbers are never torn apart."""
    lines = [Content.styled(line, "$warning") for line in _wrapped(mark, width)]
    lines += [Content.styled(line, _DIM) for line in _wrapped(note, width)]
    lines += [Content.styled(line, _DIM) for line in packed(numbers, width)]
    return lines + [Content.styled(line, _DIM) for line in _wrapped(place, width)]


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n") if text else []:
        places = [0, *breaks(line, width), len(line)]
        lines += [line[start:end].rstrip() for start, end in pairwise(places)]
    return lines


class TurnFoot(Widget):
    """Dim lines that fit their column; nothing while there is nothing to say."""

    def __init__(self) -> None:
        super().__init__(classes="turn-foot")
        self._mark = self._note = self._place = ""
        self._numbers: tuple[str, ...] = ()
        self.display = False

    def show(self, mark: str, note: str, numbers: Sequence[str], place: str) -> None:
        """Say something else; texts are clean already."""
        self._mark, self._note, self._place = mark, note, place
        self._numbers = tuple(numbers)
        self.display = bool(mark or note or numbers or place)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """The number of lines at this width."""
        return len(self._lines(width))

    def render(self) -> Content:
        """The lines at the present width."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        return foot_lines(self._mark, self._note, self._numbers, self._place, max(1, width))
