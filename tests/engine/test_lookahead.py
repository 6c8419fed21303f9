from __future__ import annotations

import numpy as np
import pytest

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


def test_tokens_tried_give_the_logits_of_steps() -> None:
    wanted, rows = stepped(4, 8, 15)
    engine, session = decoder()
    read(engine)
    session.runs.clear()

    engine.try_ahead((4, 8, 15))
    found = [engine.accept().copy() for _ in range(3)]

    assert session.runs == [3]
    np.testing.assert_array_equal(found, rows)
    assert_same(engine, wanted)


@pytest.mark.parametrize("accepted", range(4))
def test_tokens_not_accepted_were_never_there(accepted: int) -> None:
    wanted, _ = stepped(*(4, 8, 15)[:accepted], 20, 21)
    engine, _ = decoder()
    read(engine)

    engine.try_ahead((4, 8, 15))
    assert engine.used == len(PROMPT)
    for _ in range(accepted):
        engine.accept()
    assert engine.used == len(PROMPT) + accepted
    engine.step(20)
    engine.step(21)

    assert_same(engine, wanted)


@pytest.mark.parametrize("first", range(1, 4))
@pytest.mark.parametrize("second", range(1, 4))
def test_tokens_can_be_tried_while_others_are_behind(first: int, second: int) -> None:
    tokens = ((4, 8, 15)[:first], (16, 2, 3)[:second])
    wanted, rows = stepped(*tokens[0], *tokens[1])
    engine, session = decoder()
    read(engine)
    engine.try_ahead((4, 8, 15))
    found = [engine.accept().copy() for _ in range(first)]
    behind = engine.behind
    session.runs.clear()

    engine.try_ahead((16, 2, 3))
    found += [engine.accept().copy() for _ in range(second)]

    assert behind == (first if first < 3 else 0)
    assert session.runs == [behind + 3]
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(engine.logits(), rows[-1])
    assert_same(engine, wanted)


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


def test_a_written_picture_token_is_an_ordinary_token_when_tried() -> None:
    wanted, rows = stepped(IMAGE_TOKEN, 4)
    engine, _ = decoder()
    read(engine)

    engine.try_ahead((IMAGE_TOKEN, 4))
    found = [engine.accept().copy() for _ in range(2)]

    np.testing.assert_array_equal(found, rows)
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


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("in_place", [True, False])
def test_every_form_of_the_graph_can_try(rows: int, in_place: bool) -> None:
    session = NumpySession(capacity=40, counts=True, rows=rows, in_place=in_place)
    engine = OneGraphDecoder(session)
    read(engine)
    wanted, logits = stepped(4, 8, 9)

    engine.try_ahead((4, 8, 15))
    engine.accept()
    engine.accept()

    np.testing.assert_array_equal(engine.step(9), logits[-1])
    assert engine.keys.tolist() == wanted.keys.tolist()
