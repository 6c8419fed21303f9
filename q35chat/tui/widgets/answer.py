"""An answer as Markdown, streamed in bounded pieces.

The newest piece grows; a finished one is laid out once more as a whole and never touched again,
so a token costs the same at the end of a long answer as at its start.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from markdown_it import MarkdownIt
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownFence
from textual.worker import Worker, WorkerCancelled

from q35chat.tui.segments import cut, pieces
from q35chat.tui.text import clean

_SLOW_S: Final = 0.030
_REST: Final = 3.0


def _parser() -> MarkdownIt:
    """HTML in a model's text is text."""
    return MarkdownIt("gfm-like", {"html": False})


class Code(MarkdownFence):
    """A code block whose language is never guessed: guessing takes longer than a frame."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """Colour the code in the language that the fence names."""
        return super().highlight(code, language or "text", ansi=ansi, dark=dark)


class Piece(Markdown):
    """A part of an answer."""

    BLOCKS = {**Markdown.BLOCKS, "fence": Code, "code_block": Code}  # noqa: RUF012

    def __init__(self, source: str, *, goes_on: bool = False) -> None:
        super().__init__(source, parser_factory=_parser, open_links=False)
        self.set_goes_on(goes_on)

    def set_goes_on(self, goes_on: bool) -> None:
        """Whether the next piece is the rest of the same code block."""
        self.set_class(goes_on, "-goes-on")


class Answer(Vertical):
    """The pieces of one answer, in order."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._text = clean(text)
        self._pending: list[str] = []
        self._wake = asyncio.Event()
        self._ending = False
        self._worker: Worker[None] | None = None
        self._open = ""
        self._piece: Piece | None = None

    def compose(self) -> ComposeResult:
        """The pieces of the text so far."""
        yield from self._pieces(self._text)

    @property
    def text(self) -> str:
        """All text given so far, cleaned."""
        return self._text

    def write(self, fragment: str) -> None:
        """Add text; returns at once, the layout follows."""
        if not fragment:
            return
        cleaned = clean(fragment)
        self._text += cleaned
        self._pending.append(cleaned)
        if self._worker is None:
            self._ending = False
            self._worker = self.run_worker(self._stream(), group="answer")
        self._wake.set()

    async def finish(self, text: str | None = None) -> None:
        """Lay out everything; with `text`, make sure that exactly it is shown."""
        if self._worker is not None:
            self._ending = True
            self._wake.set()
            try:
                await self._worker.wait()
            except WorkerCancelled:
                return
            self._worker = None
        if text is not None and clean(text) != self._text:
            await self._replace(clean(text))
        elif self._piece is not None:
            await self._piece.update(self._open)

    async def _stream(self) -> None:
        while not (self._ending and not self._pending):
            await self._wake.wait()
            self._wake.clear()
            fragment = "".join(self._pending)
            self._pending.clear()
            started = time.perf_counter()
            await self._append(fragment)
            spent = time.perf_counter() - started
            if spent > _SLOW_S and not self._ending:
                await asyncio.sleep(spent * _REST)

    async def _append(self, fragment: str) -> None:
        if not fragment:
            return
        self._open += fragment
        found = cut(self._open)
        if self._piece is None:
            await self._start_piece("" if found else self._open)
        elif found is None:
            await self._piece.append(fragment)
        while found is not None and self._piece is not None:
            self._piece.set_goes_on(found.inside_fence)
            await self._piece.update(found.done)
            self._open = found.rest
            found = cut(self._open)
            await self._start_piece("" if found else self._open)

    async def _start_piece(self, source: str) -> None:
        self._piece = Piece(source)
        await self.mount(self._piece)

    async def _replace(self, text: str) -> None:
        self._text = text
        fresh = self._pieces(text)
        with self.app.batch_update():
            await self.remove_children()
            await self.mount_all(fresh)

    def _pieces(self, text: str) -> list[Piece]:
        """Widgets for a whole text; the last one is where more would be added."""
        if not text:
            self._open, self._piece = "", None
            return []
        parts = pieces(text)
        made = [Piece(source, goes_on=goes_on) for source, goes_on in parts]
        self._open, self._piece = parts[-1][0], made[-1]
        return made
