"""One turn as events: plan, pictures, prompt, then token after token.

Owns the order of things and why a turn ends. A stop is seen between steps, pictures and prompt
chunks; closing the iterator anywhere leaves a state that the next turn can go on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

from q35chat.chat.answer import AnswerText
from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    Notice,
    PromptPlan,
    Timings,
    Token,
    Usage,
)
from q35chat.chat.limits import Limits
from q35chat.chat.model import Model
from q35chat.chat.prompt import Prompt
from q35chat.chat.reading import PromptReader
from q35chat.chat.values import ChatSettings
from q35chat.engine.sampling import Sampler
from q35chat.engine.session import Array
from q35chat.errors import CapacityError

ShouldStop = Callable[[], bool]


def plan_of(model: Model, prompt: Prompt) -> PromptPlan:
    """What reading `prompt` takes now."""
    return PromptPlan(
        prompt_tokens=len(prompt),
        reused_tokens=model.cache.reusable(prompt.keys),
        image_tokens=prompt.image_tokens,
        capacity=model.decoder.capacity,
    )


class Generation:
    """One turn over one model; `events` is consumed once."""

    def __init__(
        self, model: Model, prompt: Prompt, settings: ChatSettings, should_stop: ShouldStop
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._should_stop = should_stop
        self._reader = PromptReader(model, prompt, should_stop)
        self._text = AnswerText(
            model.tokenizer, model.tags, opened=prompt.opened, stops=settings.stop
        )
        self._text.resume(prompt.written)
        self._sampler = Sampler(settings.sampling, prompt.ids.tolist(), settings.sampling.seed)
        self._limits = Limits(settings, model.tags, model.tokenizer)
        self._ids: list[int] = []
        self._predict_ms: list[float] = []
        self._wall_ms: list[float] = []
        self._first_token_ms = 0.0

    def events(self) -> Iterator[Event]:
        """Run the turn. Raises CapacityError before the first event."""
        started = perf_counter()
        plan = plan_of(self._model, self._prompt)
        check_fit(plan)
        yield plan
        yield from self._reader.events()
        reason: FinishReason = "cancelled"
        if self._reader.complete:
            reason = yield from self._answer(started)
        rest = self._text.flush()
        if rest.text:
            yield Token(None, rest.text, rest.kind, 0.0, 0.0, self._slots_free())
        yield Finished(
            reason, self._text.text, self._text.reasoning, tuple(self._ids), self._usage(plan)
        )

    def _answer(self, started: float) -> Iterator[Event]:
        decoder = self._model.decoder
        logits, predict_ms, wall_ms = decoder.logits(), 0.0, 0.0
        while True:
            token = self._next(logits)
            now = perf_counter()
            if not self._ids:
                self._first_token_ms = (now - started) * 1e3
            else:
                wall_ms = (now - began) * 1e3
        ...

    def _slots_free(self) -> int:
        return self._model.decoder.capacity - self._model.decoder.used
