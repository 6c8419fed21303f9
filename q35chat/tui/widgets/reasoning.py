"""The model's reasoning: a box that grows with it and folds when the answer starts.

While it grows it is low and follows its end; what the reader opens is there as a whole.
"""

from __future__ import annotations

from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from q35chat.text import pluralise
from q35chat.tui.application import key_of
from q35chat.tui.text import clean, seconds
from q35chat.tui.widgets.containers import FollowScroll
from q35chat.tui.widgets.selecting import SelectableText

_CHUNK: Final = 1_500


class ReasoningHead(Static):
    """How long it took; no part of what was thought."""

    ALLOW_SELECT = False


class Reasoning(Vertical):
    """Plain text in bounded chunks, so that a long thought costs no more per token."""

    def __init__(self, text: str = "", tokens: int = 0) -> None:
        super().__init__()
        self._chunks = _chunks(clean(text))
        self._folded = True
        self._by_reader = self._into_view = False
        self._tokens = tokens
        self._seconds = 0.0
        self._live = False
        self.display = bool(text)

    def compose(self) -> ComposeResult:
        """A head that folds, and the text under it."""
        yield ReasoningHead(classes="reasoning-head")
        with FollowScroll():
            for chunk in self._chunks:
                yield SelectableText(chunk, markup=False)

    def on_mount(self) -> None:
        """Show the head as it stands."""
        self._refresh_head()
        self.query_one(FollowScroll).display = not self._folded

    @property
    def text(self) -> str:
        """What is shown."""
        return "".join(self._chunks)

    @property
    def folded(self) -> bool:
        """Whether only the head shows."""
        return self._folded

    def write(self, fragment: str, tokens: int, spent_s: float) -> None:
        """Add reasoning text as it comes."""
        body = self.query_one(FollowScroll)
        if not self._live:
            self._live = True
            self.display = True
            self.add_class("-growing")
            self._set_folded(False)
            body.anchor()
        self._tokens, self._seconds = self._tokens + tokens, spent_s
        text = (self._chunks.pop() if self._chunks else "") + clean(fragment)
        fresh = _chunks(text)
        self._chunks += fresh
        shown = list(body.query(Static))
        if shown and len(self._chunks) - len(fresh) == len(shown) - 1:
            shown[-1].update(Content(fresh[0]))
            fresh = fresh[1:]
        if fresh:
            body.mount_all([SelectableText(chunk, markup=False) for chunk in fresh])
        self._refresh_head()

    def finish(self) -> None:
        """The answer has started or the turn has ended: fold, unless the reader chose."""
        if not self._live:
            return
        self._live = False
        self.remove_class("-growing")
        if not self._by_reader:
            self._set_folded(True)
        self._refresh_head()

    def toggle(self, *, into_view: bool = False) -> None:
        """Fold or unfold by the reader's wish; what is unfolded comes `into_view`, its head on
        top."""
        self._by_reader = True
        self._set_folded(not self._folded)
        self._into_view = into_view and not self._folded
        self._refresh_head()

    def on_resize(self) -> None:
        """What was unfolded has its place."""
        if self._into_view:
            self._into_view = False
            self.scroll_visible(top=True, animate=False)

    def on_click(self, event: events.Click) -> None:
        """A click on the head folds or unfolds; one in the text may select."""
        event.stop()
        if isinstance(event.widget, ReasoningHead):
            self.toggle()

    def _set_folded(self, folded: bool) -> None:
        self._folded = folded
        self.query_one(FollowScroll).display = not folded

    def _refresh_head(self) -> None:
        arrow = "▸" if self._folded else "▾"
        words = "thinking…" if self._live else "thought"
        parts = [f"{arrow} {words}"]
        if self._tokens:
            parts.append(pluralise(self._tokens, "token"))
        if self._seconds:
            parts.append(seconds(self._seconds))
        key = key_of(self, "reasoning")
        if key:
            parts.append(key)
        self.query_one(ReasoningHead).update(Content(" · ".join(parts)))


def _chunks(text: str) -> list[str]:
    """The text in pieces that end at a line end once they are long enough."""
    chunks: list[str] = []
    while len(text) > _CHUNK:
        at = text.find("\n", _CHUNK) + 1
        if not at:
            break
        chunks.append(text[:at])
        text = text[at:]
    return [*chunks, text] if text else chunks
