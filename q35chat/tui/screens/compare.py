"""Two models' answers to one question side by side, each with its meters; either is kept."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from q35chat.chat.comparison import Comparison
from q35chat.chat.conversation import Conversation
from q35chat.chat.service import Step
from q35chat.chat.values import Turn
from q35chat.tui.chat.meter import Meter
from q35chat.tui.chat.running_turn import SHORTEST_S, RunningTurn, pacer_for
from q35chat.tui.screens.dialog import Dialog
from q35chat.tui.text import cause, clean, one_line
from q35chat.tui.widgets.containers import FollowScroll
from q35chat.tui.widgets.meters import MeterLine
from q35chat.tui.widgets.turns import AnswerView

_STACKED_BELOW = 72


class AnswerColumn(Vertical):
    """One model's answer over a line of its meters."""

    def __init__(self, step: Step, name: str, meter: Meter) -> None:
        super().__init__(classes="side")
        self.answer, self.meter = AnswerView(step, name), meter
        self._line = MeterLine()

    def compose(self) -> ComposeResult:
        """The answer scrolls, the meters stay."""
        with FollowScroll():
            yield self.answer
        yield self._line

    def on_mount(self) -> None:
        """Show the numbers that there are."""
        self.show()

    def show(self) -> None:
        """Draw the meters as they are now."""
        self._line.reading = self.meter.reading()


class Keep(Static):
    """A way to end, which can be clicked."""

    def __init__(self, words: str, right: bool) -> None:
        super().__init__(Content(words), classes="keep")
        self._right = right

    def on_click(self, event: events.Click) -> None:
        """A click is what the key is."""
        event.stop()
        self.run_worker(self.screen.run_action(f"keep({self._right})"))


class CompareScreen(Dialog[bool]):
    """Gives whether the other model's answer is to be kept. Closing stops that model."""

    TITLE = "Two answers"
    WIDEST: ClassVar[int] = 200
    BINDINGS = [  # noqa: RUF012
        Binding("1", "keep(False)", "Keep the first", show=False),
        Binding("2", "keep(True)", "Keep the second", show=False),
    ]

    def __init__(self, conversation: Conversation, comparison: Comparison, name: str) -> None:
        super().__init__()
        self._comparison, self._name = comparison, name
        model = conversation.model
        question, answer = _last(conversation)
        self._question = question
        mine, other = Meter(), Meter()
        mine.idle(conversation)
        self._left = AnswerColumn(answer, answer.model or model.name, mine)
        self._right = AnswerColumn(Step("", Turn("assistant", "")), name, other)
        self._turn = RunningTurn(comparison.events(), pacer_for(model.target))
        self._timer: Timer | None = None

    def body(self) -> ComposeResult:
        """The question, both answers, what goes on, and what can be done."""
        yield Static(Content.styled(one_line(self._question, 400), "bold"), id="question")
        with Horizontal(id="sides"):
            yield self._left
            yield self._right
        yield Static(id="state")
        with Horizontal(id="ways"):
            yield Keep("1 keep first", right=False)
            yield Keep("2 keep second", right=True)
            yield Static(Content("Esc stop and close"), id="close")

    def on_mount(self) -> None:
        """The other model is loaded and asked in a worker."""
        self._say(f"{self._name} is being loaded…")
        self._right.meter.begin()
        self.run_worker(self._turn.consume, thread=True, group="compare")
        self._timer = self.set_interval(SHORTEST_S, self._frame)

    def on_resize(self, event: events.Resize) -> None:
        """One above the other where there is no room beside."""
        self.set_class(event.size.width < _STACKED_BELOW, "-stacked")

    def on_unmount(self) -> None:
        """However it is closed, the other model is not computed any longer."""
        self._comparison.cancel()

    def action_keep(self, right: bool) -> None:
        """Close, with the answer at this side as the one that is read on."""
        if right and not self._comparison.answered:
            self._say("There is no second answer yet")
        else:
            self.dismiss(right)

    def _frame(self) -> None:
        batch = self._turn.frame()
        if batch is None:
            return
        view, meter = self._right.answer, self._right.meter
        if batch.plan is not None and self._comparison.model is not None:
            meter.model = self._comparison.model
            self._say("")
        meter.take(batch)
        if batch.reasoning:
            tokens = sum(token.kind == "reasoning" for token in batch.tokens)
            view.reasoning.write(batch.reasoning, tokens, self._turn.thinking_s)
        if batch.answer:
            view.reasoning.finish()
            view.answer.write(batch.answer)
        for text in batch.notices:
            self._say(text)
        self._right.show()
        if batch.ended and self._timer is not None:
            self._timer.stop()
            view.finish(self._turn.finished)
            if self._turn.error is not None:
                self._say(cause(self._turn.error))

    def _say(self, text: str) -> None:
        state = self.query_one("#state", Static)
        state.update(Content(clean(text)))
        state.display = bool(text)


def _last(conversation: Conversation) -> tuple[str, Step]:
    """The last question, and its answer; an empty one where there is none."""
    steps = conversation.steps
    answer = steps[-1] if steps[-1].turn.role == "assistant" else Step("", Turn("assistant", ""))
    questions = [step.turn.text for step in steps if step.turn.role == "user"]
    return questions[-1], Step("", answer.turn, usage=answer.usage, model=answer.model)
