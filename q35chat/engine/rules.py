"""How the next token is chosen, as a value. Imports nothing heavy: the first paint waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from q35chat.engine.session import Array


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """`temperature` divides the logits, 0 is greedy. `top_k` of the best are kept (0 is off), of
    them the probability mass `top_p` (1 is off), and those with at least `min_p` times the
    probability of the best (0 is off). `presence_penalty` is subtracted once from every id that was
    generated (0 is off), `repetition_penalty` divides positive logits of every id seen (1 is off).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


class Constraint(Protocol):
    """What the tokens of one sequence have to spell, token by token."""

    def allowed(self) -> Array:
        """Which tokens may come next, [V] bool; at least one."""

    def take(self, token: int) -> None:
        """The sequence goes on with `token`."""
