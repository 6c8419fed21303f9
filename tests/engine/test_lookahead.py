from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from q35chat.engine.slots import NoSlotError
from tests.doubles.numpy_session import IMAGE_TOKEN, NumpySession

PROMPT = np.array([7, 1, 2, 9, 11, 3])


def decoder(capacity: int = 40) -> tuple[OneGraphDecoder, NumpySession]:
    session = NumpySession(capacity=capacity, counts=True)
    return OneGraphDecoder(session, image_token_id=IMAGE_TOKEN), session


def read(engine: OneGraphDecoder, ids: Array = PROMPT) -> Array:
    start = engine.rope_position
    positions = np.tile(np.arange(start, start + len(ids)), (3, 1))
    logits = extend(engine, ids, positions)
    return logits.copy()


def stepped(*tokens: int) -> tuple[OneGraphDecoder, list[Array]]:
    """The same sequence, a step at a time, and the logits after each."""
    engine, _ = decoder()
    read(engine)
    return engine, [engine.step(token).copy() for token in tokens]


def assert_same(engine: OneGraphDecoder, wanted: OneGraphDecoder) -> None:
    assert engine.keys.tolist() == wanted.keys.tolist()
    assert engine.rope_position == wanted.rope_position
    found, states = engine.snapshot().states, wanted.snapshot().states
    for name in states:
        np.testing.assert_array_equal(found[name], states[name])


def test_a_graph_with_logits_of_the_last_token_only_cannot_try() -> None:
    assert decoder()[0].speculative
    assert OneGraphDecoder(NumpySession()).speculative is None


TRY = st.lists(st.sampled_from([1, 4, 8, 15, IMAGE_TOKEN]), min_size=1, max_size=3).flatmap(
    lambda tokens: st.tuples(st.just(tokens), st.integers(0, len(tokens)))
)


@given(tries=st.lists(TRY, max_size=4), rows=st.sampled_from([3, 4]), in_place=st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_was_tried_only_what_was_accepted_was_read(
    tries: list[tuple[list[int], int]], rows: int, in_place: bool
) -> None:
    session = NumpySession(capacity=40, counts=True, rows=rows, in_place=in_place)
    engine, plain = (
        OneGraphDecoder(graph, image_token_id=IMAGE_TOKEN)
        for graph in (session, NumpySession(capacity=40, rows=rows, in_place=in_place))
    )
    for each in (engine, plain):
        read(each)
    for tokens, accepted in tries:
        behind = engine.behind
        session.runs.clear()
        engine.try_ahead(tokens)
        assert session.runs == [behind + len(tokens)]
        for token in tokens[:accepted]:
            np.testing.assert_array_equal(engine.accept(), plain.step(token))
            np.testing.assert_array_equal(engine.logits(), plain.logits())
        assert engine.used == plain.used
        assert engine.behind == (0 if accepted == len(tokens) else behind + accepted)
    for token in (20, 21):
        np.testing.assert_array_equal(engine.step(token), plain.step(token))

    assert_same(engine, plain)


def test_a_prompt_read_after_some_were_accepted_goes_on_from_them() -> None:
    wanted, _ = stepped(4, 8)
    read(wanted, np.array([1, 2, 3]))
    engine, session = decoder()
    read(engine)
    engine.try_ahead((4, 8, 15))
    engine.accept()
    engine.accept()
    session.runs.clear()

    read(engine, np.array([1, 2, 3]))

    assert session.runs == [2, 3]
    assert_same(engine, wanted)


def test_a_snapshot_with_tokens_behind_is_that_of_steps() -> None:
    wanted, _ = stepped(4)
    engine, _ = decoder()
    read(engine)
    engine.try_ahead((4, 8, 15))
    engine.accept()

    kept = engine.snapshot()
    engine.step(9)
    engine.restore(kept)

    assert_same(engine, wanted)


def test_going_back_drops_what_is_behind() -> None:
    wanted, rows = stepped(9)
    engine, _ = decoder()
    read(engine)
    kept = engine.snapshot()
    engine.try_ahead((4, 8, 15))
    engine.accept()

    engine.restore(kept)

    assert engine.behind == 0
    np.testing.assert_array_equal(engine.step(9), rows[0])
    assert_same(engine, wanted)


def test_a_reset_drops_what_is_behind() -> None:
    wanted, _ = stepped()
    engine, _ = decoder()
    read(engine)
    engine.try_ahead((4, 8, 15))
    engine.accept()

    engine.reset()
    read(engine)

    assert_same(engine, wanted)


def test_rows_written_by_a_try_are_no_longer_those_of_a_snapshot() -> None:
    engine, _ = decoder()
    read(engine)
    short = engine.snapshot()
    engine.step(4)
    engine.step(8)
    long = engine.snapshot()
    engine.restore(short)
    assert engine.holds(long)

    engine.try_ahead((5, 6))

    assert engine.holds(short)
    assert not engine.holds(long)


def test_a_try_reaches_the_last_slot_and_is_refused_beyond_it() -> None:
    engine, session = decoder(capacity=len(PROMPT) + 3)
    read(engine)

    engine.try_ahead((4, 8, 15))
    engine.accept()
    engine.accept()
    runs = len(session.runs)
    with pytest.raises(NoSlotError, match="all 9 slots are used"):
        engine.try_ahead((1, 2))
    assert len(session.runs) == runs

    engine.step(15)
    assert engine.used == engine.capacity


def test_a_try_that_fails_leaves_the_sequence_as_it_was() -> None:
    wanted, rows = stepped(4, 20)
    engine, session = decoder()
    read(engine)
    engine.try_ahead((4, 8, 15))
    engine.accept()

    def fail() -> None:
        raise RuntimeError("out of memory")

    session.before_run = fail
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.try_ahead((20, 21))
    session.before_run = lambda: None

    np.testing.assert_array_equal(engine.step(20), rows[1])
    assert_same(engine, wanted)


def test_tries_of_one_shape_share_their_buffers() -> None:
    engine, session = decoder()
    read(engine)
    for _ in range(2):
        engine.try_ahead((1, 2))
        engine.accept()
        engine.accept()
    before = session.allocated, session.bound

    for _ in range(3):
        engine.try_ahead((1, 2))
        engine.accept()
        engine.accept()

    assert (session.allocated, session.bound) == before
