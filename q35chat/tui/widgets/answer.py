"""An answer as Markdown, streamed in bounded pieces.

The newest piece is laid out again as it grows; a finished one is never touched again, so a
token costs the same at the end of a long answer as at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.selection import Selection

from q35chat.tui.application import application
from q35chat.tui.markdown.segments import pieces
from q35chat.tui.markdown.source import code_blocks
from q35chat.tui.text import clean
from q35chat.tui.widgets.containers import CachedHeight
from q35chat.tui.widgets.selecting import Selectable

_WIDTHS: Final = 2
_FENCES: Final = ("```", "~~~")


def warm_up() -> None:
    """Load what laying out needs, so that the first paint need not; for a worker thread."""
    from q35chat.tui.markdown.layout import lay_out  # noqa: PLC0415

    lay_out("```python\nx = 1\n```\n\n$\\alpha$", 40)


class Piece(Selectable):
    """A part of an answer in one widget; laid out once per text and width. `inside_code`: it begins
    with the rest of a code block that the piece before it begins."""

    def __init__(self, source: str, *, goes_on: bool = False, inside_code: bool = False) -> None:
        super().__init__()
        self._source = source
        self.inside_code = inside_code
        self._laid_out: dict[int, tuple[Content, int]] = {}
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
            self._source, self._laid_out = source, {}
            same = before and all(self._at(width)[1] == old[1] for width, old in before.items())
            self.refresh(layout=not same)

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002
        """As wide as there is room."""
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """The number of lines at this width."""
        return self._at(width)[1]

    def render(self) -> Content:
        """The lines at the present width."""
        return self._at(self.content_size.width)[0]

    def action_copy_code(self, number: int) -> None:
        """Copy the code block with this number here, from 0: all of it, also of other pieces."""
        answer = self.parent
        if isinstance(answer, Answer):
            application(self).copy(answer.code_of(self, number), "the code block")

    def text_lines(self) -> Sequence[str]:
        """The lines at the present width."""
        return self.render().plain.split("\n")

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The source of what is selected, and what stands before that of the next piece."""
        from q35chat.tui.markdown.selection import selected_source  # noqa: PLC0415 - see `warm_up`

        start, end = (
            None if offset is None else (offset.y, offset.x)
            for offset in (selection.start, selection.end)
        )
        width, added = self.content_size.width, self._added()
        source = selected_source(self._source, width, start, end, inside_code=self.inside_code)
        if start is None:
            source = source[added[0] :]
        if end is None:
            source = source[: len(source) - added[1]]
            return source, ("" if source.endswith("\n") or self.has_class("-goes-on") else "\n\n")
        return source, "\n\n"

    def _added(self) -> tuple[int, int]:
        answer = self.parent
        return answer.added_to(self) if isinstance(answer, Answer) else (0, 0)

    def _at(self, width: int) -> tuple[Content, int]:
        """Content and height; a layout may ask with and without a scrollbar."""
        if width not in self._laid_out:
            while len(self._laid_out) >= _WIDTHS:
                del self._laid_out[next(iter(self._laid_out))]
            from q35chat.tui.markdown.layout import lay_out  # noqa: PLC0415 - see `warm_up`

            lines = lay_out(self._source, width, inside_code=self.inside_code)
            self._laid_out[width] = (Content("\n").join(lines), len(lines))
        return self._laid_out[width]


class Answer(CachedHeight, Vertical):
    """The pieces of one answer, in order."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = clean(text)
        parts = pieces(self._text) if self._text else []
        self._pieces = _following(None, parts)
        self.display = bool(self._pieces)

    def compose(self) -> ComposeResult:
        """The pieces of the text so far."""
        yield from self._pieces

    @property
    def text(self) -> str:
        """All text given so far, cleaned."""
        return self._text

    def added_to(self, wanted: Piece) -> tuple[int, int]:
        """How many characters at the beginning and at the end of a piece are not in the text: the
        fence of a code block that is cut in two is closed and opened again."""
        at = before = after = 0
        for piece in self._pieces:
            source = piece.source
            head = source.find("\n") + 1
            before = 0 if self._text.startswith(source[:head], at) else head
            tail = len(source.rstrip("\n")) - source.rstrip("\n").rfind("\n") - 1
            whole = self._text.startswith(source[before:], at)
            after = 0 if whole else tail + len(source) - len(source.rstrip("\n"))
            if piece is wanted:
                break
            at += len(source) - before - after
        return before, after

    def code_of(self, piece: Piece, number: int) -> str:
        """The code block with this number in a piece, and what later pieces have of it."""
        place = self._pieces.index(piece)
        blocks = code_blocks(piece.source)
        parts, last = [blocks[number].text], number == len(blocks) - 1
        for later in self._pieces[place + 1 :]:
            if not (last and later.inside_code):
                break
            blocks = code_blocks(later.source)
            parts += [block.text for block in blocks[:1]]
            last = len(blocks) <= 1
        return "\n".join(parts)

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
        fresh = _following(before, parts)
        self._pieces += fresh
        if fresh:
            self.display = True
            self.mount_all(fresh)


def _following(before: Piece | None, parts: Sequence[tuple[str, bool]]) -> list[Piece]:
    """Pieces of these sources after the one `before` them, if there is one."""
    fresh: list[Piece] = []
    for source, goes_on in parts:
        cut = before is not None and before.has_class("-goes-on")
        inside = cut and source.lstrip(" ").startswith(_FENCES)
        before = Piece(source, goes_on=goes_on, inside_code=inside)
        fresh.append(before)
    return fresh
