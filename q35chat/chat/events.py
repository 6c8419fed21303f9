"""What a running turn tells its consumer: plain values, in order.

`PromptPlan`, then `VisionProgress` and `PrefillProgress`, then `Token` after `Token`, perhaps a
`Notice`, and one `Finished` at the end. The texts of all `Token` events of a kind, joined, are
exactly the reasoning or the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

TokenKind = Literal["reasoning", "answer"]
FinishReason = Literal["stop", "length", "capacity", "cancelled", "loop"]


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What this turn will read: all counts are tokens, which are KV slots."""

    prompt_tokens: int
    reused_tokens: int
    image_tokens: int
    capacity: int

    @property
    def new_tokens(self) -> int:
        """Tokens to read now."""
        return self.prompt_tokens - self.reused_tokens

    @property
    def slots_free(self) -> int:
        """Slots left for the answer after the prompt is read."""
        return self.capacity - self.prompt_tokens


@dataclass(frozen=True, slots=True)
class VisionProgress:
    """Pictures encoded so far, and how many tokens they have, and all of them."""

    done: int
    total: int
    tokens_done: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt tokens read so far, of those that had to be read."""

    done: int
    total: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The logarithmic probability that the model gave a token, and the likeliest ids with theirs,
    best first; before temperature, filters and penalties."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PromptLikelihoods:
    """How likely each token of the prompt was, with its id, from the second on; told once, where it
    was asked for."""

    tokens: tuple[tuple[int, Likelihood], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token. `text` may be empty while a character is incomplete.

    `id` is None where it is not known. `made` is how many tokens the text stands for: none where it
    was held back and is released at the end of the turn, several where a server sends them
    together; the clocks are those of one of them. Both are 0 for the first token, which comes out
    of reading the prompt. `likelihood` is there where it was asked for.
    """

    id: int | None
    text: str
    kind: TokenKind
    predict_ms: float
    wall_ms: float
    slots_free: int
    made: int = 1
    likelihood: Likelihood | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, in one line: a loop was stopped, thinking was cut."""

    text: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds. `predict` is inside the runtime, `wall` is until the next token is known;
    tokens that one run computed share its time.

    `route` says how the prompt was read where there was a choice between two graphs.
    """

    vision_ms: float = 0.0
    prefill_ms: float = 0.0
    first_token_ms: float = 0.0
    predict_ms: tuple[float, ...] = ()
    wall_ms: tuple[float, ...] = ()
    route: str = ""

    @property
    def step_ms(self) -> float:
        """The mean wall time of a step; 0 where there was none."""
        return sum(self.wall_ms) / len(self.wall_ms) if self.wall_ms else 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts and capacity at the end of a turn.

    `completion_tokens` are all that the model wrote: the `reasoning_tokens` among them, and the id
    that ended the turn.
    Of the `drafted_tokens`, which were guessed and computed ahead, `accepted_tokens` came true.
    """

    prompt_tokens: int
    reused_tokens: int
    image_tokens: int
    reasoning_tokens: int
    completion_tokens: int
    capacity_total: int
    capacity_used: int
    timings: Timings
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def capacity_free(self) -> int:
        """Slots that no token occupies."""
        return self.capacity_total - self.capacity_used


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a turn. `token_ids` are the model's own ids, stop id included if it came."""

    reason: FinishReason
    text: str
    reasoning: str
    token_ids: tuple[int, ...]
    usage: Usage


Event = (
    PromptPlan | VisionProgress | PrefillProgress | PromptLikelihoods | Token | Notice | Finished
)


def as_generator(events: Iterator[Event]) -> Generator[Event]:
    """The same events, which can be closed early."""
    yield from events


def shared_times(times: Sequence[float], predict_ms: Sequence[float]) -> tuple[float, ...]:
    """`times` of tokens, each token with an equal share of the run that it came from.

    A token whose time inside the runtime is 0 came from the same run as the one before it. The
    sum stays what it was.
    """
    begins = [place for place, time in enumerate(predict_ms) if time > 0 or place == 0]
    found: list[float] = []
    for begin, end in pairwise([*begins, len(predict_ms)]):
        found += [sum(times[begin:end]) / (end - begin)] * (end - begin)
    return tuple(found)
