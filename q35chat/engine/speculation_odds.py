"""Whether drafts pay: what a run of several tokens costs here, and how often drafts come true.

Both are learnt while the model runs and forgotten slowly, so that speculation switches itself on
where it wins and off where it does not. Drafts are judged whether they were tried or not: the next
token shows for nothing whether one would have been right; only those that have a price are judged
by tries alone. Knows no graph and no token.
"""

from __future__ import annotations

from collections.abc import Sequence

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
