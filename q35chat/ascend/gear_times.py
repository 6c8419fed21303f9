"""How long each gear of a loaded model takes, and a step. Knows no report and no bundle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.gears import GraphName
from q35chat.engine.tokens import Tokens

_RUNS = 3
_TOKEN = 1  # any text token: times do not depend on it


@dataclass(frozen=True, slots=True)
class GearTime:
    """The median of a few runs inside the runtime, after one that does not count; `by_host` tells
    that results came through the host."""

    graph: GraphName
    tokens: int
    ms: float
    by_host: bool


def gear_times(decoder: GearedDecoder) -> Iterator[GearTime]:
    """Every gear over a sequence of its own, shortest first, then steps over few slots of a cache,
    of one token and of every number that can be tried. The sequence of `decoder` is lost."""
    for tokens in decoder.gears:
        ms = []
        for _ in range(_RUNS + 1):
            decoder.reset()
            decoder.read_gear(tokens, _text(tokens))
            ms.append(decoder.predict_ms)
        yield GearTime("prefill", tokens, median(ms[1:]), "prefill" in decoder.detours)
    for tokens in range(1, decoder.most_tokens + 1):
        ms = []
        decoder.reset()
        for shortest in decoder.gears[:1]:  # a step needs a token before it where the cache grows
            decoder.read_gear(shortest, _text(1))
        for _ in range(min(_RUNS + 1, decoder.capacity - tokens)):
            _run_step(decoder, tokens)
            ms.append(decoder.predict_ms)
        yield GearTime("decode", tokens, median(ms[1:] or ms), "decode" in decoder.detours)


def _run_step(decoder: GearedDecoder, tokens: int) -> None:
    """A step; one of several tokens is not accepted, so that the next one is as long."""
    if tokens == 1:
        decoder.step(_TOKEN)
    else:
        decoder.try_ahead([_TOKEN] * tokens)


def _text(count: int) -> Tokens:
    ids = np.full(count, _TOKEN, np.int64)
    return Tokens(ids, np.tile(np.arange(count), (3, 1)), ids, np.zeros(count, np.bool_), None)
