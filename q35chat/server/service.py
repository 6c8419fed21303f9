"""The service behind all protocols: what is asked becomes a job for the desk.

Owns which prompt that is, and what of it is refused beforehand. Its methods that make prompts take
time and belong into a thread. Knows no protocol's fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished, PromptPlan
from q35chat.chat.prompt.template import Prompt
from q35chat.chat.turn.generate import check_fit
from q35chat.chat.values import ChatSettings, Tools, Turn, TurnOptions
from q35chat.errors import BundleError
from q35chat.server.answers import OwnAnswers
from q35chat.server.desk import Answering, AnswerJob, Desk
from q35chat.server.metrics import Metrics
from q35chat.server.problems import RefusedError

DEFAULT_BODY_MIB: Final = 32
DEFAULT_WAITING: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a client asks: a conversation, `turns`, or a `text` (or token ids) to go on with. Where
    both are missing nothing is asked."""

    settings: ChatSettings
    turns: tuple[Turn, ...] = ()
    text: str | Sequence[int] = ""
    tools: Tools = ()
    options: TurnOptions = field(default_factory=TurnOptions)
    client: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """One loaded model for all clients; `defaults` are what a request leaves open."""

    engine: ChatEngine
    desk: Desk
    metrics: Metrics
    defaults: ChatSettings
    answers: OwnAnswers = field(default_factory=OwnAnswers)
    most_body: int = DEFAULT_BODY_MIB << 20

    @classmethod
    def over(
        cls,
        engine: ChatEngine,
        defaults: ChatSettings,
        *,
        most_waiting: int = DEFAULT_WAITING,
        most_body: int = DEFAULT_BODY_MIB << 20,
    ) -> Service:
        """A service of `engine`, with a desk of its own."""
        metrics = Metrics()
        desk = Desk(engine, metrics, most_waiting)
        metrics.watch("waiting", "Requests that wait.", lambda: desk.waiting)
        metrics.watch("running", "Requests that are being answered.", lambda: desk.busy)
        metrics.watch("capacity_slots", "Slots of the model.", lambda: engine.model.capacity)
        metrics.watch("used_slots", "Slots that hold a token.", lambda: engine.slots_used)
        return cls(engine, desk, metrics, defaults, most_body=most_body)

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.engine.model.name

    def stop(self) -> None:
        """End what is being answered, and what is about to be; from any thread."""
        self.desk.close()
        self.engine.interrupt(leaving=True)

    def close(self) -> None:
        """Free the model, once nothing is answered any more."""
        self.stop()
        self.desk.wait()
        self.engine.close()

    def prompt(self, asked: Asked) -> Prompt:
        """What the model will read. Raises RefusedError, CapacityError, PictureError."""
        if not asked.turns:
            return self.engine.text_prompt(asked.text)
        try:
            return self._of_turns(asked, asked.turns)
        except BundleError as error:
            merged = plainer(asked.turns)
            if merged == asked.turns:
                raise RefusedError(str(error), param="messages") from error
        try:
            return self._of_turns(asked, merged)
        except BundleError as error:
            raise RefusedError(str(error), param="messages") from error

    def job(self, asked: Asked) -> AnswerJob:
        """What the desk is given. Raises RefusedError, CapacityError, PictureError."""
        prompt = self.prompt(asked)
        check_fit(self.plan(prompt))
        return AnswerJob(
            prompt=prompt,
            settings=asked.settings,
            options=asked.options,
            client=asked.client,
            owner=_owner(prompt, asked),
            follow_up=self._follow_up(asked, prompt),
        )

    def plan(self, prompt: Prompt) -> PromptPlan:
        """What reading it takes."""
        return self.engine.plan_prompt(prompt)

    def submit(self, job: AnswerJob) -> Answering:
        """Have it answered; in the event loop. Raises RefusedError where too many wait."""
        return self.desk.submit(job)

    def _of_turns(self, asked: Asked, turns: Sequence[Turn]) -> Prompt:
        self.engine.check_length("".join(turn.text for turn in turns))
        return self.engine.prompt(turns, asked.settings, asked.tools)

    def _follow_up(self, asked: Asked, prompt: Prompt) -> Callable[[Finished], Prompt]:
        def of_text(finished: Finished) -> Prompt:
            return Prompt.of_text([*prompt.ids.tolist(), *finished.token_ids, 0])

        def of_turns(finished: Finished) -> Prompt:
            turns = (*asked.turns, Turn.answer(finished), Turn("user", ""))
            return self.prompt(replace(asked, turns=turns))

        return of_turns if asked.turns else of_text


def plainer(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """`turns` for a template that takes less: all instructions in one at the beginning, and what a
    tool gave as a user's text in the tags that Qwen's template puts around it."""
    texts = [turn.text.strip() for turn in turns if turn.role == "system"]
    others = [_told_by_user(turn) for turn in turns if turn.role != "system"]
    merged = "\n\n".join(filter(None, texts))
    return (Turn("system", merged), *others) if merged else tuple(others)


def _told_by_user(turn: Turn) -> Turn:
    if turn.role != "tool":
        return turn
    return replace(turn, role="user", text=f"<tool_response>\n{turn.text}\n</tool_response>")


def _owner(prompt: Prompt, asked: Asked) -> str:
    """Names a conversation by its instructions and its first question."""
    has_system = bool(asked.turns) and asked.turns[0].role == "system"
    places = prompt.ends[has_system : has_system + 1] or prompt.ends[-1:] or (len(prompt),)
    return hashlib.sha256(prompt.keys[: places[0]].tobytes()).hexdigest()
