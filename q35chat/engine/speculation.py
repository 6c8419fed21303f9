"""Steps of one token, computed several at a time where the next ones can be guessed.

Exact by construction. The caller chooses every token itself, from the logits that `step` returns
for the tokens chosen before; a draft only decides whether those logits are there already. So
greedy output, sampled output and the random numbers it takes are those without drafts. For a draft
that is one certain token, choosing first and comparing then is the acceptance rule of speculative
sampling: it is accepted with its own probability, and else the choice is one of the others, in
their proportions.

A run of several tokens rounds differently than a step, as a prompt read at once does: ONNX Runtime
multiplies one row of attention by other instructions than several. In FP32 that changes no token;
where inputs are rounded to int8 it can change a close choice. So that the same question gets the
same answer where nothing is left to chance, what is tried must not depend on the clock there:
`Odds(timed=False)`.

Knows no sampling, no tokenizer and no text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from q35chat.engine.decoder import Decoder
from q35chat.engine.session import Array
from q35chat.engine.speculation_lookup import PromptLookup
from q35chat.engine.speculation_odds import Odds

Speculate = Literal["off", "lookup", "auto"]

LENGTHS = (1, 3, 7)
MOST_TOKENS = 12  # of a run, those that are read once more included


class Drafter(Protocol):
    """Guesses how a sequence goes on."""

    @property
    def next(self) -> int | None:
        """The first token of a draft, None where there is none."""

    @property
    def strength(self) -> int:
        """How sure it is: drafts of one strength come true about as often as each other."""

    def push(self, token: int) -> None:
        """The sequence goes on with `token`."""

    def draft(self, most: int) -> list[int]:
        """At most `most` tokens that may follow."""


class Speculator:
    """The steps of one turn over a decoder that has read its prompt.

    `drafter` is None where nothing is drafted; `always` tries whatever can be drafted, else `odds`
    decide. `drafted` counts tokens tried, `accepted` those of them that were chosen then.
    """

    def __init__(
        self, decoder: Decoder, odds: Odds, drafter: Drafter | None, *, always: bool = False
    ) -> None:
        self._decoder = decoder
        self._odds = odds
        self._drafter = drafter
        self._always = always
        self._expected: list[int] = []
        self.drafted = 0
        self.accepted = 0
        self.predict_ms = 0.0

    def step(self, token: int) -> Array:
        """Read one more text token; return the logits [V], a view that the next run overwrites.

        `predict_ms` is then the time inside the runtime, 0 for a token that was accepted. Raises
        NoSlotError when every slot is used.
        """
        if self._drafter is not None:
            self._learn(self._drafter, token)
        if self._expected and self._expected.pop(0) == token:
            self.accepted += 1
            self.predict_ms = 0.0
            return self._decoder.accept()
        return self._run(token)

    def _learn(self, drafter: Drafter, token: int) -> None:
        if drafter.next is not None:
            self._odds.note_outcome(drafter.strength, right=drafter.next == token)
        drafter.push(token)

    def _run(self, token: int) -> Array:
        decoder = self._decoder
        self._expected = self._draft()
        tokens = 1 + decoder.behind + len(self._expected)
        if self._expected:
            decoder.try_ahead((token, *self._expected))
            self.drafted += len(self._expected)
            logits = decoder.accept()
        else:
            logits = decoder.step(token)
        self.predict_ms = decoder.predict_ms
        self._odds.note_run(tokens, self.predict_ms)
        return logits

    def _draft(self) -> list[int]:
        """What may follow the token that comes now."""
        drafter, decoder = self._drafter, self._decoder
        if drafter is None or drafter.next is None:
            return []
        room = min(MOST_TOKENS - decoder.behind, decoder.capacity - decoder.used) - 1
        lengths = [length for length in LENGTHS if length <= room]
        if self._always:
            length = max(lengths, default=0)
        else:
            length = self._odds.best(drafter.strength, lengths, decoder.behind)
        return drafter.draft(length)


def speculator(decoder: Decoder, odds: Odds, prompt: Iterable[int], mode: Speculate) -> Speculator:
    """Steps after `prompt` with drafts "off", from "lookup" whatever they cost, or on "auto".

    Nothing is drafted for a graph that cannot try.
    """
    drafter = PromptLookup(prompt) if mode != "off" and decoder.can_try else None
    return Speculator(decoder, odds, drafter, always=mode == "lookup")
