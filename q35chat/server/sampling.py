"""How a turn is to be generated, as the fields of a request say it under the names of several
protocols."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from q35chat.chat.values import PRESERVE, ChatSettings
from q35chat.json_reader import Fields
from q35chat.server.body import characters, section, text, whole_or_none
from q35chat.server.problems import RefusedError
from q35chat.text import safe_line

MOST_STOPS: Final = 16
MOST_LOGPROBS: Final = 20
_SEEDS: Final = 1 << 63
_NO_THINKING: Final = "none"
_EFFORTS: Final = {"minimal": 16, "low": 8, "medium": 4, "high": 2, "xhigh": 1}
"""Which part of the capacity a thought may take, where a template has no words for effort."""


def check_possible(body: Fields) -> None:
    """Refuse what would change the answer and is not there. Raises RefusedError."""
    if body.whole("n", 1, least=1) != 1:
        raise RefusedError("n: one answer is written at a time: leave it out or send 1", param="n")
    if body.real("frequency_penalty", 0.0):
        raise RefusedError(
            "frequency_penalty is not supported: send presence_penalty or repetition_penalty",
            param="frequency_penalty",
        )
    if body.raw("logit_bias"):
        raise RefusedError("logit_bias is not supported: leave it out", param="logit_bias")


def settings_of(body: Fields, defaults: ChatSettings, stop: str = "stop") -> ChatSettings:
    """`defaults` under what the request says of sampling; `stop` is the field with the texts that
    end an answer. Raises RefusedError."""
    base = defaults.sampling
    top_k = body.whole("top_k", base.top_k, least=-1)
    sampling = replace(
        base,
        temperature=body.real("temperature", base.temperature, least=0.0, most=1e9),
        top_p=body.real("top_p", base.top_p, least=0.0, most=1.0),
        top_k=max(top_k, 0),
        min_p=body.real("min_p", base.min_p, least=0.0, most=1.0),
        presence_penalty=body.real("presence_penalty", base.presence_penalty, least=-2, most=2),
        repetition_penalty=body.real(
            "repetition_penalty", base.repetition_penalty, least=0.01, most=100
        ),
        seed=body.whole("seed", least=-_SEEDS) % _SEEDS if body.has("seed") else base.seed,
    )
    return replace(defaults, sampling=sampling, stop=_stops(body, stop) or defaults.stop)


def with_thinking(
    body: Fields, settings: ChatSettings, capacity: int, efforts: tuple[str, ...], most: int | None
) -> ChatSettings:
    """`settings` under what the request says of reasoning. Where the whole answer may have at most
    `most` tokens and no budget is given, a thought takes half of them, so that an answer comes.
    Raises RefusedError."""
    kwargs = section(body, "chat_template_kwargs")
    thinking = kwargs.flag("enable_thinking", body.flag("enable_thinking", settings.thinking))
    preserve = kwargs.flag(PRESERVE, default=False) if kwargs.has(PRESERVE) else None
    budget = whole_or_none(body, "thinking_budget", least=1) or settings.thinking_budget
    effort = text(body, "reasoning_effort", "")
    if effort == _NO_THINKING:
        thinking = False
    elif effort in efforts:
        thinking = True
    elif effort in _EFFORTS:
        thinking, budget = True, budget or max(capacity // _EFFORTS[effort], 1)
    elif effort:
        known = ", ".join((_NO_THINKING, *(efforts or _EFFORTS)))
        said = safe_line(effort, 60)
        raise RefusedError(
            f"reasoning_effort must be one of {known}, found {said!r}", param="reasoning_effort"
        )
    elif body.has("thinking_budget"):
        thinking = True
    if thinking and budget is None and most is not None:
        budget = max(most // 2, 1)
    return replace(
        settings.with_thinking(thinking, budget if thinking else None),
        reasoning_effort=effort if effort in efforts else settings.reasoning_effort,
        preserve_thinking=preserve if preserve is not None else settings.preserve_thinking,
    )


def _stops(body: Fields, name: str) -> tuple[str, ...]:
    value: Any = body.raw(name)
    if value is None:
        return ()
    stops = (value,) if isinstance(value, str) else body.texts(name)
    if len(stops) > MOST_STOPS:
        raise RefusedError(f"{name}: {len(stops)} texts, at most {MOST_STOPS} may end an answer")
    return tuple(characters(stop, name) for stop in stops if stop)
