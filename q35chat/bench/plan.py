"""What a run measures: lengths that fit the capacity, or a refusal with the numbers.

Knows slots and counts, no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from q35chat.errors import CapacityError

PROMPT, TOKENS, SHORT = 512, 128, 100
_LARGER = "or export with a larger --max-seq-len"


@dataclass(frozen=True, slots=True)
class Plan:
    """A prefill of `prompt` tokens, and `tokens` decode steps behind each of `contexts` (tokens
    that are there already, ascending); everything `repeat` times."""

    prompt: int
    tokens: int
    contexts: tuple[int, ...]
    repeat: int


def make_plan(
    capacity: int,
    *,
    prompt: int | None = None,
    tokens: int | None = None,
    contexts: Sequence[int] = (),
    repeat: int = 5,
) -> Plan:
    """The plan for `capacity` slots; what is not given is chosen so that it fits.

    Contexts that are not given are a short one, half the capacity, and the longest that leaves
    room for the steps. Raises CapacityError for what was given and does not fit.
    """
    if prompt is not None and prompt > capacity:
        raise CapacityError(
            f"--prompt {prompt} needs {prompt} slots, capacity {capacity}: "
            f"use --prompt {capacity} or less, {_LARGER}"
        )
    tokens = _steps(capacity, tokens)
    room = capacity - tokens
    for context in contexts:
        if context > room:
            raise CapacityError(
                f"a context of {context} with {tokens} steps needs {context + tokens} slots, "
                f"capacity {capacity}: use --context {room} or less, fewer --tokens, {_LARGER}"
            )
    chosen = contexts or [length for length in (SHORT, capacity // 2, room) if length <= room]
    return Plan(prompt or min(PROMPT, capacity), tokens, tuple(sorted(set(chosen))), repeat)


def _steps(capacity: int, tokens: int | None) -> int:
    """Decode steps that leave at least one slot for a context."""
    if tokens is None:
        return max(1, min(TOKENS, capacity // 4))
    if tokens >= capacity:
        raise CapacityError(
            f"--tokens {tokens} and a context of at least 1 need {tokens + 1} slots, "
            f"capacity {capacity}: use --tokens {capacity - 1} or less, {_LARGER}"
        )
    return tokens
