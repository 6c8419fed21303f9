"""Speculation: steps of one token, computed several at a time where the next can be guessed.

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

Whether drafts pay is learnt while the model runs and forgotten slowly (`Odds`), so that
speculation switches itself on where it wins and off where it does not. Drafts are judged whether
they were tried or not: the next token shows for nothing whether one would have been right; only
those that have a price are judged by tries alone.

There are two drafters: from the sequence itself, and from the checkpoint's own head. Knows no
sampling, no tokenizer and no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from q35chat.engine.decoder import Decoder, SpeculativeDecoder
from q35chat.engine.draft_head import DraftHead
from q35chat.engine.session import Array
from q35chat.user_input import Speculate

LENGTHS = (1, 3, 7)
HEAD_LENGTHS = (1, 2, 3)
_GRAMS = (4, 2)
_BOUNDS = (2, 3, 4, 6, 8, 12, 16, 24)  # of the strength, the lower ends of classes
_FIRST_RATES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.9)
_FIRST_EXTRA = 0.4
_FIRST_HEAD_RATES = (0.8, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
_FIRST_PRICE = 0.25  # by the weights a head reads: 0.36 of a step at 0.8B, 0.18 at 4B
_SPEED = 0.1
_RETURN = 0.003
_RATE_SPEED = 0.05
_LEAST_GAIN = 0.05  # of a step


class Odds:
    """Estimates that may outlive a turn.

    `extra` is what each further token adds to a run, `price` what guessing it costs, as shares of a
    step of one token. Where they are not `timed`, they stay the first guesses, and what is tried
    follows from the tokens alone.
    """

    def __init__(self, *, timed: bool = True, head: bool = False) -> None:
        """With `head`, of drafts that a head computes; else of those that cost nothing."""
        self.extra = _FIRST_EXTRA
        self._first_price = self.price = _FIRST_PRICE if head else 0.0
        self._timed = timed
        self._step_ms: float | None = None
        self._first_rates = _FIRST_HEAD_RATES if head else _FIRST_RATES
        self._rates = list(self._first_rates)

    def note_run(self, tokens: int, milliseconds: float) -> None:
        """A run over `tokens` tokens took so long.

        Where nothing is tried for long, `extra` goes back to the first guess: the machine may
        have been busy with something else, and only a try can tell.
        """
        if not self._timed:
            return
        if tokens == 1:
            before = milliseconds if self._step_ms is None else self._step_ms
            self._step_ms = before + _SPEED * (min(milliseconds, 2 * before) - before)
            self.extra += _RETURN * (_FIRST_EXTRA - self.extra)
        elif self._step_ms:
            found = (milliseconds / self._step_ms - 1) / (tokens - 1)
            self.extra += _SPEED * (min(max(found, 0.0), 2.0) - self.extra)

    def note_draft(self, tokens: int, milliseconds: float) -> None:
        """Guessing `tokens` tokens took so long."""
        if self._timed and self._step_ms and tokens:
            found = milliseconds / self._step_ms / tokens
            self.price += _SPEED * (min(found, 2.0) - self.price)

    def note_untried(self) -> None:
        """Nothing was drafted where that has a price, so nothing was learnt: rates and price go
        back to the first guesses, slowly; only a try can tell."""
        if not self._first_price:
            return
        self.price += _RETURN * (self._first_price - self.price)
        for place, first in enumerate(self._first_rates):
            self._rates[place] += _RETURN * (first - self._rates[place])

    def note_outcome(self, strength: int, *, right: bool) -> None:
        """A draft copied from a place that agreed over `strength` tokens was right, or wrong."""
        place = _class(strength)
        self._rates[place] += _RATE_SPEED * (right - self._rates[place])

    def rate(self, strength: int) -> float:
        """How likely the first token of such a draft is right."""
        return self._rates[_class(strength)]

    def gain(self, strength: int, drafted: int, behind: int) -> float:
        """What trying `drafted` tokens is expected to save, in steps of one token.

        Each token that comes true saves a step; each tried one costs `extra` and `price`, and if
        one is wrong all before it, `behind` tokens included, are read once more.
        """
        true_so_far, saved, again = 1.0, 0.0, 0.0
        for place in range(drafted):
            rate = self.rate(strength + place)
            again += true_so_far * (1 - rate) * (behind + place + 1)
            true_so_far *= rate
            saved += true_so_far
        return saved - self.extra * (drafted + again) - self.price * drafted

    def best(self, strength: int, lengths: Sequence[int], behind: int) -> int:
        """The length, of `lengths`, that saves most; 0 where none is worth trying."""
        gains = {length: self.gain(strength, length, behind) for length in lengths}
        best = max(gains, key=lambda length: gains[length], default=0)
        return best if best and gains[best] > _LEAST_GAIN else 0


def _class(strength: int) -> int:
    return sum(strength >= bound for bound in _BOUNDS)


class PromptLookup:
    """Prompt lookup: a sequence, and where in it its own end was seen before.

    Quotes, names, code and lists come again word for word.

    Each token costs a few dictionary entries, however long the sequence is.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids: list[int] = []
        self._followers: dict[tuple[int, ...], int] = {}
        self._source: int | None = None
        self.strength = 0
        for token in ids:
            self.push(token)

    @property
    def next(self) -> int | None:
        """The token that a draft would begin with, None where there is none."""
        return None if self._source is None else self._ids[self._source]

    @property
    def ready(self) -> bool:
        """Whether there is a draft."""
        return self._source is not None

    @property
    def milliseconds(self) -> float:
        """Nothing is run."""
        return 0.0

    def push(self, token: int) -> None:
        """The sequence goes on with `token`.

        `strength` is then how many of its last tokens agree with the place that drafts are copied
        from, 0 where there is none.
        """
        if self._source is not None and self._ids[self._source] == token:
            self._source += 1
            self.strength += 1
        else:
            self._source, self.strength = None, 0
        self._ids.append(token)
        end = len(self._ids)
        for length in _GRAMS:
            if end < length:
                continue
            gram = tuple(self._ids[-length:])
            seen = self._followers.get(gram)
            if self._source is None and seen is not None:
                self._source, self.strength = seen, length
            self._followers[gram] = end

    def draft(self, most: int) -> list[int]:
        """At most `most` tokens that may follow; a copy that reaches the end goes on in itself."""
        if self._source is None:
            return []
        period = len(self._ids) - self._source
        copied = self._ids[self._source : self._source + most]
        return [copied[place % period] for place in range(most)]


class HeadDrafter:
    """What the head of a decoder expects to follow the token that is read next.

    Each token of a draft costs a run of the head, so nothing is guessed before it is asked for.
    """

    def __init__(self, decoder: Decoder, head: DraftHead) -> None:
        self._decoder = decoder
        self._head = head
        self._token: int | None = None
        self._expected: list[int] = []
        self.strength = 1

    @property
    def next(self) -> int | None:
        """What the last draft says comes now, None where it is at its end or was wrong."""
        return self._expected[0] if self._expected else None

    @property
    def ready(self) -> bool:
        """Whether there can be a draft."""
        return self._token is not None

    @property
    def milliseconds(self) -> float:
        """What the last draft took inside the runtime."""
        return self._head.milliseconds

    def push(self, token: int) -> None:
        """The sequence goes on with `token`.

        `strength` is then the place in its draft of the token expected next, from 1: the further
        ahead, the less sure.
        """
        if self._expected and self._expected.pop(0) == token:
            self.strength += 1
        else:
            self._expected.clear()
        if not self._expected:
            self.strength = 1
        self._token = token

    def draft(self, most: int) -> list[int]:
        """At most `most` tokens that may follow the last one pushed."""
        assert self._token is not None
        self._expected = self._head.draft(self._token, most, self._decoder.rope_position)
        self.strength = 1
        return list(self._expected)


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
class DraftSource:
    """A drafter and what is known of its drafts; `lengths` that a draft may have.

    Where something is tried whatever it costs, it has at least `shortest` tokens; None means all
    that fit.
    """

    drafter: Drafter
    odds: Odds
    lengths: tuple[int, ...] = LENGTHS
    shortest: int | None = None

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
        if self.shortest is None:
            return longest
        return max(self.best(room, behind)[0], min(self.shortest, longest))

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
        self, decoder: Decoder, sources: Iterable[DraftSource] = (), *, always: bool = False
    ) -> None:
        self._decoder = decoder
        self._speculative = decoder.speculative
        self._sources = tuple(sources) if self._speculative else ()
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
        decoder = self._speculative
        if decoder is None or not self._sources:
            logits = self._decoder.step(token)
            self.predict_ms = self._decoder.predict_ms
            return logits
        if self._expected and self._expected.pop(0) == token:
            self.accepted += 1
            self.predict_ms = 0.0
            return decoder.accept()
        self._expected, draft_ms = self._draft(decoder)
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

    def _draft(self, decoder: SpeculativeDecoder) -> tuple[list[int], float]:
        """What may follow the token that comes now, and the milliseconds that guessing took."""
        behind = decoder.behind
        room = min(decoder.most_tokens - behind, decoder.capacity - decoder.used) - 1
        if self._always:
            chosen = self._sources[0]
            length = chosen.always(room, behind)
        else:
            found = [(source, *source.best(room, behind)) for source in self._sources]
            chosen, length, _ = max(found, key=lambda choice: choice[2])
        for source in self._sources:
            if not (source is chosen and length) and source.drafter.next is None:
                source.odds.note_untried()
        return chosen.draft(length) if length else ([], 0.0)


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
    speculative = decoder.speculative
    if mode == "off" or speculative is None:
        return Speculator(decoder)
    sources = [] if mode == "mtp" else [DraftSource(PromptLookup(prompt), odds)]
    if mode != "lookup" and speculative.head is not None:
        drafter = HeadDrafter(speculative, speculative.head)
        sources.append(DraftSource(drafter, head_odds or Odds(head=True), HEAD_LENGTHS, shortest=1))
    return Speculator(decoder, sources, always=mode != "auto")
