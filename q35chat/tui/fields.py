"""The settings that can be typed: how each is read from and written to `ChatSettings`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from q35chat.chat.values import ChatSettings, TemplateOffers
from q35chat.user_input import SAMPLING_RANGES


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: `show` gives its text, `apply` ValueError says why not."""

    id: str
    label: str
    help: str
    show: Callable[[ChatSettings], str]
    apply: Callable[[ChatSettings, str], ChatSettings]


def number(text: str, low: float, high: float) -> float:
    """A number within bounds. Raises ValueError with a message for people."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        raise ValueError(f"must be a number from {low:g} to {high:g}") from None
    if not low <= value <= high:
        raise ValueError(f"must be from {low:g} to {high:g}")
    return value


def whole(text: str, low: int, high: int) -> int:
    """A whole number within bounds. Raises ValueError with a message for people."""
    try:
        value = int(text.strip().replace(",", ""))
    except ValueError:
        raise ValueError(f"must be a whole number from {low:,} to {high:,}") from None
    if not low <= value <= high:
        raise ValueError(f"must be from {low:,} to {high:,}")
    return value


def optional_whole(text: str, low: int, high: int) -> int | None:
    """A whole number within bounds, or None for an empty text."""
    return whole(text, low, high) if text.strip() else None


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _sampling(name: str, label: str, help_text: str, read: Callable[..., Any]) -> Field:
    low, high = SAMPLING_RANGES[name]

    def apply(settings: ChatSettings, text: str) -> ChatSettings:
        value = read(text, low, high)
        return replace(settings, sampling=replace(settings.sampling, **{name: value}))

    return Field(name, label, help_text, lambda it: _text(getattr(it.sampling, name)), apply)


def _limit(name: str, label: str, help_text: str, read: Callable[[str], Any]) -> Field:
    def apply(settings: ChatSettings, text: str) -> ChatSettings:
        return replace(settings, **{name: read(text)})

    return Field(name, label, help_text, lambda it: _text(getattr(it, name)), apply)


_LARGE: Final = 1_000_000

SAMPLING_FIELDS: Final = (
    _sampling("temperature", "Temperature", "0 takes the likeliest token", number),
    _sampling("top_k", "Top k", "the k likeliest tokens; 0 is off", whole),
    _sampling("top_p", "Top p", "likeliest that sum to p; 1 is off", number),
    _sampling("min_p", "Min p", "from p of the likeliest on; 0 is off", number),
    _sampling("presence_penalty", "Presence penalty", "against repeating; 0 is off", number),
    _sampling("repetition_penalty", "Repetition penalty", "against repeating; 1 is off", number),
    _sampling("seed", "Seed", "fixes the answer; empty is random", optional_whole),
)

LIMIT_FIELDS: Final = (
    _limit("max_new_tokens", "Answer limit", "tokens; empty is up to capacity",
           partial(optional_whole, low=1, high=_LARGE)),
    _limit("thinking_budget", "Thinking limit", "tokens; empty is no limit",
           partial(optional_whole, low=1, high=_LARGE)),
    _limit("max_image_tokens", "Picture limit", "tokens; larger pictures are shrunk",
           partial(whole, low=4, high=16_384)),
)  # fmt: skip

_KEPT: Final = {"keep": True, "drop": False, "": None}


def thinking_fields(offers: TemplateOffers) -> tuple[Field, ...]:
    """What the template of a model lets one choose of its thinking."""
    found = []
    if offers.efforts:
        found.append(
            _word(
                "reasoning_effort",
                "Thinking effort",
                {effort: effort for effort in offers.efforts} | {"": ""},
            )
        )
    if offers.preserves:
        found.append(_word("preserve_thinking", "Earlier thoughts", _KEPT))
    return tuple(found)


def _word(name: str, label: str, values: Mapping[str, object]) -> Field:
    """A setting with a word for each of its values; the empty one leaves it to the template."""
    words = ", ".join(filter(None, values))

    def apply(settings: ChatSettings, text: str) -> ChatSettings:
        word = text.strip().lower()
        if word not in values:
            raise ValueError(f"must be one of {words}, or empty")
        changes: dict[str, Any] = {name: values[word]}
        return replace(settings, **changes)

    return Field(
        name,
        label,
        f"{words}; empty is the template's own",
        lambda settings: next(
            (word for word, value in values.items() if value == getattr(settings, name)), ""
        ),
        apply,
    )
