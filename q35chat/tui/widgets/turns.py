"""One message on screen: a question with its pictures, or an answer with its reasoning."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from q35chat.chat.events import Finished
from q35chat.chat.service import Step
from q35chat.chat.values import Attachment, Turn
from q35chat.tui.text import MARKS, clean, count, finish_mark, one_line, usage_line
from q35chat.tui.widgets.answer import Answer
from q35chat.tui.widgets.picture import Picture
from q35chat.tui.widgets.reasoning import Reasoning
from q35chat.tui.widgets.steady import SteadyHeight

_DIM = "$foreground 55%"


def draft_step(turn: Turn) -> Step:
    """A turn on screen that the conversation has not named yet."""
    return Step("", turn)


class TurnView(SteadyHeight, Vertical):
    """What questions and answers have in common: the step they show."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.set_class(step.left_out, "-left-out")

    def fits(self, step: Step) -> bool:
        """Whether this widget already shows that step's message."""
        raise NotImplementedError

    def adopt(self, step: Step) -> None:
        """Take the step's name and place; the message is the same."""
        self.step = step
        self.set_class(step.left_out, "-left-out")


class Question(TurnView):
    """What the user asked."""

    def __init__(self, step: Step, *, pictures: bool = True) -> None:
        super().__init__(step)
        self._pictures = pictures

    def compose(self) -> ComposeResult:
        """Pictures in a row, then the text."""
        turn = self.step.turn
        if turn.attachments:
            with Horizontal(classes="pictures"):
                for attachment in turn.attachments:
                    yield from self._picture(attachment)
        if turn.text:
            yield Static(Content(clean(turn.text)), classes="question-text")

    def _picture(self, attachment: Attachment) -> ComposeResult:
        with Vertical(classes="picture-card"):
            if self._pictures:
                yield Picture(attachment.data)
            yield Static(Content(picture_caption(attachment)), classes="caption")

    def fits(self, step: Step) -> bool:
        """The same words and pictures."""
        mine, other = self.step.turn, step.turn
        return other.role == "user" and mine.text == other.text and _names(mine) == _names(other)


class AnswerView(TurnView):
    """What the model said, its reasoning folded above, its numbers dim below."""

    def __init__(self, step: Step, name: str) -> None:
        super().__init__(step)
        self._model_name = name
        self._line = ""
        self._mark = MARKS.get(step.turn.finish, "") if step.turn.finish else ""

    def compose(self) -> ComposeResult:
        """Name, reasoning, answer, marks and numbers."""
        yield Static(Content(one_line(self._model_name, 60)), classes="answer-name")
        yield Reasoning(self.step.turn.reasoning)
        yield Answer(self.step.turn.text)
        yield Static(classes="answer-foot")

    def on_mount(self) -> None:
        """Show the foot of a stored answer."""
        self._refresh_foot()

    @property
    def answer(self) -> Answer:
        """The Markdown part."""
        return self.query_one(Answer)

    @property
    def reasoning(self) -> Reasoning:
        """The box above it."""
        return self.query_one(Reasoning)

    def reopen(self) -> None:
        """More text will follow."""
        self._line = self._mark = ""
        self._refresh_foot()

    def finish(self, finished: Finished | None) -> None:
        """The turn has ended; None when it failed before it could finish."""
        self.reasoning.settle()
        self._mark = finish_mark(finished) if finished else "■ failed"
        self._line = usage_line(finished.usage) if finished else ""
        self._refresh_foot()

    def fits(self, step: Step) -> bool:
        """The same text, as far as the screen shows it."""
        turn = step.turn
        return turn.role == "assistant" and clean(turn.text).strip() == self.answer.text.strip()

    def adopt(self, step: Step) -> None:
        """Also show which of several answers this is."""
        super().adopt(step)
        if step.turn.finish:
            self._mark = MARKS.get(step.turn.finish, "")
        self._refresh_foot()

    def _refresh_foot(self) -> None:
        parts: list[Content] = []
        if self._mark:
            parts.append(Content.styled(self._mark, "$warning"))
        if self.step.note:
            parts.append(Content.styled(clean(self.step.note), _DIM))
        line = self._line or (usage_line(self.step.usage) if self.step.usage else "")
        if line:
            parts.append(Content.styled(line, _DIM))
        if self.step.branches > 1:
            place = f"answer {self.step.branch + 1} of {count(self.step.branches)}"
            parts.append(Content.styled(f"{place}  Alt+←/→", _DIM))
        foot = self.query_one(".answer-foot", Static)
        foot.update(Content("\n").join(parts))
        foot.display = bool(parts)


def picture_caption(attachment: Attachment) -> str:
    """Name, size and cost of a picture."""
    size = f"{attachment.width}×{attachment.height}"
    return f"{one_line(attachment.name, 24)}  {size}  {count(attachment.tokens)} tok"


def _names(turn: Turn) -> list[str]:
    return [attachment.sha256 for attachment in turn.attachments]
