from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from q35chat.bench.measure import (
    Allocation,
    DecodeRun,
    Measurement,
    Plan,
    PrefillRun,
    Round,
)
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from tests.doubles.numpy_session import IMAGE_TOKEN, NumpySession

PLAN = Plan(prompt=20, tokens=3, contexts=(4, 9), repeat=2)


class Stop:
    """Says to stop once it was asked `after` times."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def best(logits: Array, _maxima: Array | None) -> int:
    return int(logits.argmax())


def measurement(session: NumpySession, plan: Plan = PLAN, after: float = math.inf) -> Measurement:
    stop = Stop(int(min(after, 1e9)))
    decoder = OneGraphDecoder(session, image_token_id=IMAGE_TOKEN, chunk=8)
    return Measurement(decoder, plan, lambda: best, stop, IMAGE_TOKEN)


def without_progress(items: Iterable[object]) -> Iterator[object]:
    return (item for item in items if not isinstance(item, Round))


def test_every_round_is_measured_behind_its_context() -> None:
    items = list(without_progress(measurement(NumpySession(capacity=24)).run()))

    prefills = [(run.context, run.tokens) for run in items if isinstance(run, PrefillRun)]
    assert prefills == [(0, 20)] * 2 + [(4, 20)] * 2 + [(9, 15)] * 2
    decodes = [(run.context, len(run.wall_ms)) for run in items if isinstance(run, DecodeRun)]
    assert decodes == [(4, 3)] * 2 + [(9, 3)] * 2
    assert sum(isinstance(item, Allocation) for item in items) == 1


def test_time_inside_the_runtime_and_for_choosing_is_part_of_a_step() -> None:
    for run in measurement(NumpySession(capacity=24)).run():
        if isinstance(run, DecodeRun):
            parts = zip(run.wall_ms, run.predict_ms, run.choose_ms, strict=True)
            assert all(0 < inside + choosing <= wall for wall, inside, choosing in parts)
        if isinstance(run, PrefillRun):
            assert 0 < run.predict_ms <= run.wall_ms <= run.first_token_ms


def test_a_prompt_that_fills_every_slot_can_be_measured() -> None:
    plan = Plan(prompt=24, tokens=4, contexts=(20,), repeat=1)

    runs = list(without_progress(measurement(NumpySession(capacity=24), plan).run()))
    assert [run.tokens for run in runs if isinstance(run, PrefillRun)] == [24, 4]


@pytest.mark.parametrize("after", range(40))
def test_a_stop_at_any_time_leaves_whole_measurements(after: int) -> None:
    items = list(without_progress(measurement(NumpySession(capacity=24), after=after).run()))

    for item in items:
        if isinstance(item, DecodeRun):
            assert len(item.wall_ms) == PLAN.tokens
    assert len(items) <= 11


def test_a_stop_comes_before_the_next_step() -> None:
    session = NumpySession(capacity=24)
    items = list(measurement(session, after=0).run())

    assert list(without_progress(items)) == []
    assert len(session.runs) <= 2


def test_no_token_of_a_picture_is_read() -> None:
    decoder = OneGraphDecoder(
        NumpySession(capacity=512, vocab=IMAGE_TOKEN + 1), image_token_id=IMAGE_TOKEN
    )
    plan = Plan(prompt=300, tokens=1, contexts=(1,), repeat=1)

    list(Measurement(decoder, plan, lambda: best, lambda: False, IMAGE_TOKEN).run())


def test_the_same_tokens_are_read_in_every_run() -> None:
    first, second = (measurement(NumpySession(capacity=24)) for _ in range(2))

    list(first.run())
    list(second.run())
    assert np.array_equal(first.decoder.keys, second.decoder.keys)


def test_a_step_that_holds_memory_is_seen() -> None:
    chosen: list[Array] = []

    def wasteful(logits: Array, maxima: Array | None) -> int:
        chosen.append(np.ones(100_000))
        return best(logits, maxima)

    decoder = OneGraphDecoder(NumpySession(capacity=24), image_token_id=IMAGE_TOKEN)
    items = Measurement(decoder, PLAN, lambda: wasteful, lambda: False, IMAGE_TOKEN).run()
    (found,) = [item for item in items if isinstance(item, Allocation)]
    assert found.held >= 800_000
    assert found.kept >= 800_000
