"""One turn as events: the prompt is read, then a token is chosen and emitted, step after step.

`TurnGenerator.events` is the whole turn and `_answer` its loop. Owns the order of things and why a
turn ends. A stop is seen between steps, pictures and prompt chunks; closing the iterator anywhere
leaves a state that the next turn can go on from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from time import perf_counter

from q35chat.chat.events import (
    Event,
    Finished,
    FinishReason,
    Likelihood,
    Notice,
    PromptLikelihoods,
    PromptPlan,
    Timings,
    Token,
    Usage,
    shared_times,
)
from q35chat.chat.model import Model
from q35chat.chat.prompt.template import Prompt
from q35chat.chat.turn.answer import AnswerText
from q35chat.chat.turn.limits import TurnLimits
from q35chat.chat.turn.reading import PromptReader
from q35chat.chat.values import ChatSettings, TurnOptions
from q35chat.engine.sampling import Sampler, best_first, log_probabilities, masked
from q35chat.engine.session import Array
from q35chat.engine.speculation import Odds, Speculator, speculator
from q35chat.errors import CapacityError, Remedy
from q35chat.text import pluralise

ShouldStop = Callable[[], bool]


def plan_of(model: Model, prompt: Prompt) -> PromptPlan:
    """What reading `prompt` takes now."""
    return PromptPlan(
        prompt_tokens=len(prompt),
        reused_tokens=model.cache.reusable(prompt.keys),
        image_tokens=prompt.image_tokens,
        capacity=model.decoder.capacity,
    )


class TurnGenerator:
    """One turn over one model; `events` is consumed once."""

    def __init__(
        self,
        model: Model,
        prompt: Prompt,
        settings: ChatSettings,
        should_stop: ShouldStop,
        options: TurnOptions,
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._should_stop = should_stop
        self._options = options
        first = prompt.until(1) if options.prompt_logprobs else prompt
        self._reader = PromptReader(model, first, should_stop)
        self._text = AnswerText(
            model.tokenizer, opened=prompt.opened, stops=settings.stop, plain=prompt.plain
        )
        self._text.resume(prompt.written)
        self._sampler = Sampler(settings.sampling, prompt.ids.tolist(), settings.sampling.seed)
        self._limits = TurnLimits(settings, model.tokenizer, options.max_tokens)
        self._limits.resume(prompt.written)
        self._steps = _steps(model, prompt, settings)
        self._forced: deque[int] = deque()
        self._ids: list[int] = []
        self._predict_ms: list[float] = []
        self._wall_ms: list[float] = []
        self._started = 0.0

    def events(self) -> Iterator[Event]:
        """Run the turn. Raises CapacityError before the first event."""
        self._started = perf_counter()
        check_fit(plan_of(self._model, self._prompt))
        if self._model.kept is not None and not self._options.prompt_logprobs:
            self._model.kept.recall(self._prompt.keys)
        plan = plan_of(self._model, self._prompt)
        if self._options.prompt_logprobs:
            plan = replace(plan, reused_tokens=0)
        yield plan
        yield from self._reader.events()
        reason: FinishReason = "cancelled"
        if self._reader.complete and (yield from self._weigh()):
            reason = yield from self._answer()
        rest = self._text.flush()
        if rest.text:
            yield Token(None, rest.text, rest.kind, 0.0, 0.0, self._slots_free(), made=0)
        yield Finished(
            reason, self._text.text, self._text.reasoning, tuple(self._ids), self._usage(plan)
        )

    def _weigh(self) -> Generator[PromptLikelihoods, None, bool]:
        """Where it is asked for, read the prompt, of which the first token is there, step by step:
        each step's logits say how likely the next token was. Whether all is read."""
        if not self._options.prompt_logprobs:
            return True
        decoder, found = self._model.decoder, list[tuple[int, Likelihood]]()
        for token in self._prompt.ids[1:].tolist():
            if self._should_stop():
                return False
            if likelihood := self._likelihood(decoder.logits(), token):
                found.append((token, likelihood))
            decoder.step(token)
        yield PromptLikelihoods(tuple(found))
        return True

    def _answer(self) -> Generator[Event, None, FinishReason]:
        """Choose a token, emit it, stop or step, over and over; why it stopped."""
        if self._options.max_tokens == 0:
            return "length"
        logits = self._model.decoder.logits()
        while True:
            token = self._choose(logits)
            if token in self._model.stop_ids:
                return "stop"
            yield from self._emit(token, logits)
            if reason := self._reason():
                return reason
            self._started = perf_counter()
            logits = self._steps.step(token)

    def _choose(self, logits: Array) -> int:
        """The next token, sampled from `logits` [V] float32 unless it is forced; its times are the
        end of its step."""
        if self._forced:
            token = self._forced.popleft()
            self._sampler.observe(token)
        else:
            token = self._sampled(logits)
        self._predict_ms.append(self._steps.predict_ms if self._ids else 0.0)
        self._wall_ms.append((perf_counter() - self._started) * 1e3)
        self._ids.append(token)
        return token

    def _sampled(self, logits: Array) -> int:
        constraint = self._options.constraint
        if constraint is None or self._text.kind == "reasoning":
            return self._sampler(logits, self._model.decoder.maxima())
        token = self._sampler(masked(logits, constraint.allowed()))
        constraint.take(token)
        return token

    def _likelihood(self, logits: Array, token: int) -> Likelihood | None:
        count = self._options.top_logprobs
        if count is None:
            return None
        found = log_probabilities(logits)
        best = best_first(found, count)[:count].tolist() if count else []
        return Likelihood(float(found[token]), tuple((one, float(found[one])) for one in best))

    def _emit(self, token: int, logits: Array) -> Iterator[Event]:
        """What `token` says, and a notice where a thought must end."""
        part = self._text.push(token)
        wall_ms = self._wall_ms[-1] if len(self._ids) > 1 else 0.0
        yield Token(
            token,
            part.text,
            part.kind,
            self._predict_ms[-1],
            wall_ms,
            self._slots_free(),
            likelihood=self._likelihood(logits, token),
        )
        if notice := self._limits.take(token, part.kind):
            self._forced.extend(self._limits.closing_ids())
            yield Notice(notice)

    def _reason(self) -> FinishReason | None:
        """Why the turn ends here, None if it goes on."""
        if self._text.stopped:
            return "stop"
        if reason := self._limits.reached:
            return reason
        if self._slots_free() == 0:
            return "capacity"
        return "cancelled" if self._should_stop() else None

    def _slots_free(self) -> int:
        return self._model.decoder.capacity - self._model.decoder.used

    def _usage(self, plan: PromptPlan) -> Usage:
        steps = self._predict_ms[1:]  # the first token comes out of reading the prompt
        return Usage(
            prompt_tokens=plan.prompt_tokens,
            reused_tokens=plan.reused_tokens,
            image_tokens=plan.image_tokens,
            reasoning_tokens=self._limits.reasoning_tokens,
            completion_tokens=len(self._ids),
            capacity_total=plan.capacity,
            capacity_used=self._model.decoder.used,
            timings=Timings(
                vision_ms=self._reader.vision_ms,
                prefill_ms=self._reader.prefill_ms,
                first_token_ms=self._wall_ms[0] if self._wall_ms else 0.0,
                predict_ms=shared_times(steps, steps),
                wall_ms=shared_times(self._wall_ms[1:], steps),
                route=self._model.decoder.route,
            ),
            drafted_tokens=self._steps.drafted,
            accepted_tokens=self._steps.accepted,
        )


def _steps(model: Model, prompt: Prompt, settings: ChatSettings) -> Speculator:
    """Where an answer has to repeat, what is guessed does not depend on the clock; and nothing is,
    unless asked for, where a run of several tokens would not choose the tokens of steps."""
    repeats = settings.sampling.seed is not None or settings.sampling.temperature == 0.0
    mode = model.speculate
    if mode == "auto" and repeats and model.rounded:
        mode = "off"
    odds, head_odds = model.odds, model.head_odds
    if repeats:
        odds, head_odds = Odds(timed=False), Odds(timed=False, head=True)
    return speculator(model.decoder, odds, prompt.ids.tolist(), mode, head_odds)


def check_fit(plan: PromptPlan) -> None:
    """Refuse a prompt over the capacity, with the numbers."""
    if plan.prompt_tokens <= plan.capacity:
        return
    pictures = f" ({plan.image_tokens:,} for pictures)" if plan.image_tokens else ""
    wanted = pluralise(plan.prompt_tokens, "slot")
    raise CapacityError(
        f"prompt needs {wanted}{pictures}, capacity {plan.capacity:,}:",
        Remedy.SHORTEN_WITH_PICTURES if pictures else Remedy.SHORTEN,
    )
