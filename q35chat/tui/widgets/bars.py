"""The single lines of the screen: title above, notice and hints below."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from q35chat.tui.chat.session import NoticeText
from q35chat.tui.text import clean, one_line
from q35chat.tui.widgets.pressable import press, pressable

_DIM = "$foreground 60%"
_GAP = "  "

Hint = tuple[str, str]
"""A key, and in a word or two what it does."""


class TitleBar(Widget):
    """Program, conversation, and the state of the model."""

    title = reactive("")
    state = reactive("")

    def render(self) -> Content:
        """Both sides, the title cut to what is left."""
        width = self.content_size.width
        state = one_line(self.state, width // 2)
        room = max(0, width - len("q35chat · ") - len(state) - 2)
        title = one_line(self.title or "New chat", room)
        left = Content.assemble(("q35chat", "$primary bold"), (" · ", _DIM), title)
        gap = " " * max(1, width - left.cell_length - Content(state).cell_length)
        return Content.assemble(left, gap, (state, _DIM))


class NoticeLine(Widget):
    """A quiet line; hidden while there is nothing to say."""

    notice = reactive(NoticeText(), layout=True)

    def watch_notice(self, notice: NoticeText) -> None:
        """Show a line, or none."""
        self.display = bool(notice.text)

    def render(self) -> Content:
        """A sign, and the words."""
        sign, colour = ("●", "$primary") if self.notice.engine else ("▲", "$warning")
        words = (clean(self.notice.text), colour)
        return Content.assemble((f"{sign} ", f"{colour} bold"), words)


class Hints(Widget):
    """The keys that matter now, as many as fit, the most useful first; `always` stands at the
    right and never gives way to them. A click presses one."""

    hints: reactive[tuple[Hint, ...]] = reactive(())
    always: reactive[tuple[Hint, ...]] = reactive(())

    def render(self) -> Content:
        """Both groups, leaving out what does not fit."""
        return hint_line(self.hints, self.always, self.content_size.width)

    def on_click(self, event: events.Click) -> None:
        """A click on a hint is what its key is."""
        press(self, event)


def hint_line(hints: Sequence[Hint], always: Sequence[Hint], width: int) -> Content:
    """`hints` from the left, `always` at the right end of `width` cells."""
    right = _joined(always, width)
    left = _joined(hints, width - right.cell_length - len(_GAP))
    gap = " " * max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, gap, right)


def _joined(hints: Sequence[Hint], width: int) -> Content:
    shown = Content("")
    for key, words in hints:
        between = _GAP if shown.cell_length else ""
        hint = pressable(Content.assemble((key, "bold"), (f" {words}", _DIM)), key)
        if shown.cell_length + len(between) + hint.cell_length > width:
            break
        shown = Content.assemble(shown, between, hint)
    return shown
