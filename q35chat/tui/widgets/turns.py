"""A message on screen: a question with its pictures, or an answer with its reasoning.

Under it stand how it ended, what was noticed, its numbers, and which version it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from q35chat.chat.events import Finished
from q35chat.chat.service import Step
from q35chat.chat.text_files import TextFile, split_files
from q35chat.chat.values import Turn
from q35chat.tui.application import key_of
from q35chat.tui.markdown.wrapping import breaks
from q35chat.tui.text import (
    MARKS,
    clean,
    count,
    file_caption,
    one_line,
    packed,
    picture_caption,
    usage_items,
)
from q35chat.tui.widgets.answer import Answer
from q35chat.tui.widgets.containers import CachedHeight, Flow
from q35chat.tui.widgets.picture import Picture
from q35chat.tui.widgets.reasoning import Reasoning
from q35chat.tui.widgets.selecting import SelectableText

_DIM = "$foreground 60%"


class TurnFoot(Widget):
    """Dim lines that fit their column: how the turn ended, a note, numbers, which are never torn
    apart, and a place; nothing while there is nothing to say. Texts are clean already."""

    ALLOW_SELECT = False

    parts: reactive[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = reactive(
        ("", "", (), ()), layout=True
    )

    def watch_parts(self, parts: tuple[object, ...]) -> None:
        """Show them, or nothing."""
        self.display = any(parts)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """The number of lines at this width."""
        return len(self._lines(width))

    def render(self) -> Content:
        """The lines at the present width."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        width = max(1, width)
        mark, note, numbers, place = self.parts
        dim = [*_wrapped(note, width), *packed(numbers, width), *packed(place, width)]
        marked = [Content.styled(line, "$warning") for line in _wrapped(mark, width)]
        return marked + [Content.styled(line, _DIM) for line in dim]


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for line in text.split("\n") if text else []:
        places = [0, *breaks(line, width), len(line)]
        lines += [line[start:end].rstrip() for start, end in pairwise(places)]
    return lines


class TurnView(CachedHeight, Vertical):
    """What questions and answers have in common: the step they show, and a foot."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.set_class(step.left_out, "-left-out")

    def on_mount(self) -> None:
        """Show the foot of a stored turn."""
        self._refresh_foot()

    def fits(self, step: Step) -> bool:
        """Whether this widget already shows that step's message; a draft has no name yet."""
        return self.step.id in {"", step.id}

    def adopt(self, step: Step) -> None:
        """Take the step's name and place; the message is the same."""
        self.step = step
        self.set_class(step.left_out, "-left-out")
        self._refresh_foot()

    def _refresh_foot(self) -> None:
        self._show_foot()

    def _show_foot(self, mark: str = "", note: str = "", numbers: Sequence[str] = ()) -> None:
        """These, and which version of the chat ends with this turn, where there are several."""
        step = self.step
        place: tuple[str, ...] = ()
        if step.branches > 1:
            keys = [key_of(self, command) for command in ("branch_back", "branch_forward")]
            version = f"version {count(step.branch + 1)} of {count(step.branches)}"
            place = tuple(filter(None, (version, " ".join(filter(None, keys)))))
        self.query_one(TurnFoot).parts = (mark, note, tuple(numbers), place)


class FileCard(SelectableText):
    """A file in a question: one line, which a click opens and folds."""

    def __init__(self, file: TextFile) -> None:
        super().__init__(markup=False, classes="file-card")
        self._file = file
        self._open = False
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Open or fold it; further clicks select."""
        if event.chain > 1:
            super().on_click(event)
            return
        self._open = not self._open
        self._draw()

    def _draw(self) -> None:
        head = f"{'▾' if self._open else '▸'} ▤ {file_caption(self._file)}"
        text = f"{head}\n{clean(self._file.text)}" if self._open else head
        self.update(Content(text))


class Question(TurnView):
    """What the user asked."""

    def compose(self) -> ComposeResult:
        """Pictures beside each other where there is room, then the text and the foot."""
        turn = self.step.turn
        if turn.attachments:
            with Flow(classes="pictures"):
                for attachment in turn.attachments:
                    with Vertical(classes="picture-card"):
                        yield Picture(attachment.data)
                        yield Static(Content(picture_caption(attachment)), classes="caption")
        files, text = split_files(turn.text)
        for file in files:
            yield FileCard(file)
        if text:
            yield SelectableText(Content(clean(text)), classes="question-text")
        yield Static("left out: the model no longer reads this turn", classes="left-out-mark")
        yield TurnFoot()

    def fits(self, step: Step) -> bool:
        """The same words and pictures."""
        mine, other = self.step.turn, step.turn
        same = other.role == "user" and mine.text == other.text and _names(mine) == _names(other)
        return same and super().fits(step)


class AnswerName(Static):
    """Who answers; no part of what is said."""

    ALLOW_SELECT = False


class AnswerView(TurnView):
    """What the model said, its reasoning folded above, its numbers dim below."""

    def __init__(self, step: Step, name: str) -> None:
        super().__init__(step)
        thought = step.usage.reasoning_tokens if step.usage else 0
        self.reasoning = Reasoning(step.turn.reasoning, thought)
        self.answer = Answer(step.turn.text)
        self._model_name = name
        self._numbers: list[str] = []
        self._mark = MARKS.get(step.turn.finish, "") if step.turn.finish else ""

    def compose(self) -> ComposeResult:
        """Name, reasoning, answer, marks and numbers."""
        yield AnswerName(Content(one_line(self._model_name, 60)), classes="answer-name")
        yield self.reasoning
        yield self.answer
        yield TurnFoot()

    def reopen(self) -> None:
        """More text will follow."""
        self.step = replace(self.step, note="", usage=None)
        self._numbers, self._mark = [], ""
        self._refresh_foot()

    def finish(self, finished: Finished | None) -> None:
        """The turn has ended; None when it failed before it could finish."""
        self.reasoning.finish()
        self._mark = MARKS.get(finished.reason, "") if finished else "■ failed"
        self._numbers = usage_items(finished.usage) if finished else []
        self._refresh_foot()

    def fits(self, step: Step) -> bool:
        """The same text, as far as the screen shows it."""
        turn = step.turn
        same = turn.role == "assistant" and clean(turn.text).strip() == self.answer.text.strip()
        return same and super().fits(step)

    def adopt(self, step: Step) -> None:
        """Also show how the stored answer ended."""
        if step.turn.finish:
            self._mark = MARKS.get(step.turn.finish, "")
        super().adopt(step)

    def _refresh_foot(self) -> None:
        step = self.step
        numbers = self._numbers or (usage_items(step.usage) if step.usage else [])
        self._show_foot(self._mark, clean(step.note), numbers)


def _names(turn: Turn) -> list[str]:
    return [attachment.sha256 for attachment in turn.attachments]
