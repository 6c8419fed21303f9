"""The settings that can be typed: how each is read from and written to `ChatSettings`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from q35chat.chat.values import ChatSettings


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


def _sampling(settings: ChatSettings, **changes: float | None) -> ChatSettings:
    return replace(settings, sampling=replace(settings.sampling, **changes))  # type: ignore[arg-type]


def _real(name: str, label: str, help_text: str, low: float, high: float) -> Field:
    return Field(
        name,
        label,
        help_text,
        lambda settings: f"{getattr(settings.sampling, name):g}",
        lambda settings, text: _sampling(settings, **{name: number(text, low, high)}),
    )


def _optional(value: int | None) -> str:
    return "" if value is None else str(value)


_LARGE: Final = 1_000_000

SAMPLING_FIELDS: Final = (
    _real("temperature", "Temperature", "0 always takes the likeliest token", 0, 5),
    Field(
        "top_k", "Top k", "choose among the k likeliest; 0 is off",
        lambda settings: str(settings.sampling.top_k),
        lambda settings, text: _sampling(settings, top_k=whole(text, 0, _LARGE)),
    ),
    _real("top_p", "Top p", "choose among the likeliest that sum to p; 1 is off", 0.01, 1),
    _real("min_p", "Min p", "drop tokens below p of the likeliest; 0 is off", 0, 1),
    _real("presence_penalty", "Presence penalty", "against repeating; 0 is off", -2, 2),
    _real("repetition_penalty", "Repetition penalty", "against repeating; 1 is off", 0.5, 2),
    Field(
        "seed", "Seed", "the same answer every time; empty is random",
        lambda settings: _optional(settings.sampling.seed),
        lambda settings, text: _sampling(settings, seed=optional_whole(text, 0, 2**63 - 1)),
    ),
)  # fmt: skip

LIMIT_FIELDS: Final = (
    Field(
        "max_new_tokens", "Answer limit", "tokens; empty is up to capacity",
        lambda settings: _optional(settings.max_new_tokens),
        lambda settings, text: replace(settings, max_new_tokens=optional_whole(text, 1, _LARGE)),
    ),
    Field(
        "thinking_budget", "Thinking limit", "tokens; empty is no limit",
        lambda settings: _optional(settings.thinking_budget),
        lambda settings, text: replace(settings, thinking_budget=optional_whole(text, 1, _LARGE)),
    ),
    Field(
        "max_image_tokens", "Picture limit", "tokens a picture; larger ones are scaled down",
        lambda settings: str(settings.max_image_tokens),
        lambda settings, text: replace(settings, max_image_tokens=whole(text, 4, 16_384)),
    ),
)  # fmt: skip
