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
from dataclasses import dataclass
from typing import Protocol

from q35chat.choices import Speculate
from q35chat.engine.decoder import Decoder
from q35chat.engine.session import Array
from q35chat.engine.speculation_head import HeadDrafter
from q35chat.engine.speculation_lookup import PromptLookup
from q35chat.engine.speculation_odds import Odds

LENGTHS = (1, 3, 7)
HEAD_LENGTHS = (1, 2, 3)
MOST_TOKENS = 12  # of a run, those that are read once more included


class Drafter(Protocol):
    """Guesses how a sequence goes on."""

    @property
    def next(self) -> int | None:
        """The token it expects now, None where it has not guessed any."""

    @property
    def ready(self) -> bool:
        """Whether `draft` can give anything; where that is free of cost, `next` is known, too."""

    @property
    def strength(self) -> int:
        """How sure it is: drafts of one strength come true about as often as each other."""

    @property
    def milliseconds(self) -> float:
        """What the last `draft` took inside the runtime."""

    def push(self, token: int) -> None:
        """The sequence goes on with `token`."""

    def draft(self, most: int) -> list[int]:
        """At most `most` tokens that may follow."""


@dataclass(frozen=True, slots=True)
class Source:
    """A drafter and what is known of its drafts; `lengths` that a draft may have.

    Where something is tried whatever it costs, it is at least `least` tokens; None: all that fit.
    """

    drafter: Drafter
    odds: Odds
    lengths: tuple[int, ...] = LENGTHS
    least: int | None = None

    def best(self, room: int, behind: int) -> tuple[int, float]:
        """The length that saves most, and what it saves, in steps; 0 where none is worth it."""
        if not self.drafter.ready:
            return 0, 0.0
        strength = self.drafter.strength
        best = self.odds.best(strength, self._fitting(room), behind)
        return best, self.odds.gain(strength, best, behind)

    def always(self, room: int, behind: int) -> int:
        """The length to try whatever it costs; 0 where there is no draft or no room."""
        longest = max(self._fitting(room), default=0) if self.drafter.ready else 0
        if self.least is None:
            return longest
        return max(self.best(room, behind)[0], min(self.least, longest))

    def learn(self, token: int) -> None:
        """The sequence goes on with `token`."""
        if self.drafter.next is not None:
            right = self.drafter.next == token
            self.odds.note_outcome(self.drafter.strength, right=right)
        self.drafter.push(token)

    def draft(self, length: int) -> tuple[list[int], float]:
        """Tokens that may follow, and the milliseconds that guessing them took."""
        tokens = self.drafter.draft(length)
        milliseconds = self.drafter.milliseconds
        self.odds.note_draft(len(tokens), milliseconds)
        return tokens, milliseconds

    def _fitting(self, room: int) -> list[int]:
        return [length for length in self.lengths if length <= room]


class Speculator:
    """The steps of one turn over a decoder that has read its prompt.

    Of the `sources` the one whose draft saves most is tried; `always` tries the first whatever it
    costs. `drafted` counts tokens tried, `accepted` those of them that were chosen then.
    """

    def __init__(
        self, decoder: Decoder, sources: Iterable[Source] = (), *, always: bool = False
    ) -> None:
        self._decoder = decoder
        self._sources = tuple(sources)
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
        for source in self._sources:
            source.learn(token)
        if self._expected and self._expected.pop(0) == token:
            self.accepted += 1
            self.predict_ms = 0.0
            return self._decoder.accept()
        return self._run(token)

    def _run(self, token: int) -> Array:
        decoder = self._decoder
        self._expected, draft_ms = self._draft()
        tokens = 1 + decoder.behind + len(self._expected)
        if self._expected:
            decoder.try_ahead((token, *self._expected))
            self.drafted += len(self._expected)
            logits = decoder.accept()
        else:
            logits = decoder.step(token)
        for source in self._sources:
            source.odds.note_run(tokens, decoder.predict_ms)
        self.predict_ms = draft_ms + decoder.predict_ms
        return logits

    def _draft(self) -> tuple[list[int], float]:
        """What may follow the token that comes now, and the milliseconds that guessing took."""
        chosen, length = self._choice()
        for source in self._sources:
            if not (source is chosen and length) and source.drafter.next is None:
                source.odds.note_untried()
        return chosen.draft(length) if chosen is not None and length else ([], 0.0)

    def _choice(self) -> tuple[Source | None, int]:
        behind = self._decoder.behind
        room = min(MOST_TOKENS - behind, self._decoder.capacity - self._decoder.used) - 1
        if not self._sources:
            return None, 0
        if self._always:
            return self._sources[0], self._sources[0].always(room, behind)
        found = [(source, *source.best(room, behind)) for source in self._sources]
        source, length, _ = max(found, key=lambda choice: choice[2])
        return source, length


def speculator(
    decoder: Decoder,
    odds: Odds,
    prompt: Iterable[int],
    mode: Speculate,
    head_odds: Odds | None = None,
) -> Speculator:
    """Steps after `prompt` with drafts "off"; from "lookup" or from the model's own head ("mtp")
    whatever they cost; or on "auto" from where they win. `head_odds` are those of the head.

    Nothing is drafted for a graph that cannot try.
    """
    if mode == "off" or not decoder.can_try:
        return Speculator(decoder)
    sources = [] if mode == "mtp" else [Source(PromptLookup(prompt), odds)]
    if mode != "lookup" and decoder.head is not None:
        drafter = HeadDrafter(decoder, decoder.head)
        sources.append(Source(drafter, head_odds or Odds(head=True), HEAD_LENGTHS, least=1))
    return Speculator(decoder, sources, always=mode != "auto")
