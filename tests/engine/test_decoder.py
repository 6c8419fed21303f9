from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from q35chat.engine.decoder import TextModel, extend
from q35chat.engine.one_graph import OneGraphDecoder, OneGraphRuntime, chunk_ends
from q35chat.engine.session import Array
from q35chat.engine.slots import ImageRowsError, NoSlotError
from q35chat.errors import RuntimeFailure
from tests.doubles.numpy_head import NumpyHead
from tests.doubles.numpy_session import IMAGE_TOKEN, NumpyBuffer, NumpySession

PROMPT = np.array([7, 1, IMAGE_TOKEN, IMAGE_TOKEN, 2, IMAGE_TOKEN, 9, 11, 3])
PICTURES = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
POSITIONS = np.stack([np.arange(9), np.arange(9) // 2, np.arange(9) % 4])


def decoder(session: NumpySession | None = None, chunk: int = 128) -> OneGraphDecoder:
    return OneGraphDecoder(session or NumpySession(), image_token_id=IMAGE_TOKEN, chunk=chunk)


def read(engine: OneGraphDecoder) -> Array:
    logits = extend(engine, PROMPT, POSITIONS, PICTURES)
    return logits.copy()


def text(engine: OneGraphDecoder, *ids: int) -> Array:
    start = engine.rope_position
    positions = np.tile(np.arange(start, start + len(ids)), (3, 1))
    logits = extend(engine, np.array(ids), positions)
    return logits.copy()


def test_logits_are_one_float_vector_of_the_vocabulary() -> None:
    engine = decoder()

    logits = read(engine)

    assert logits.shape == (23,)
    assert logits.dtype == np.float32
    assert engine.vocab_size == 23


@pytest.mark.parametrize("chunk", range(1, 10))
@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("aliases", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_chunks_of_every_length_give_the_same_logits(
    chunk: int, rows: int, in_place: bool, aliases: bool
) -> None:
    session = NumpySession(rows=rows, in_place=in_place, aliases=aliases)

    np.testing.assert_array_equal(read(decoder(session, chunk)), read(decoder()))
    assert max(session.runs) == (9 if chunk == 8 else chunk)


@pytest.mark.parametrize(("experts", "longest"), [(0, 64), (256, 128)])
def test_a_mixture_reads_prompts_in_longer_chunks(experts: int, longest: int) -> None:
    session = NumpySession(capacity=256)
    model = TextModel(None, 23, 256, experts=experts)
    engine = OneGraphRuntime(lambda _: session).decoder(lambda _: session, model)

    extend(engine, np.ones(192, np.int64), np.tile(np.arange(192), (3, 1)))

    assert max(session.runs) == longest


def test_steps_give_the_same_logits_as_reading_at_once() -> None:
    stepped, whole = decoder(), decoder()
    for token in (7, 1, 2, 9):
        logits = stepped.step(token)

    np.testing.assert_array_equal(logits, text(whole, 7, 1, 2, 9))


def test_integers_are_fed_in_the_graphs_own_dtype() -> None:
    narrow = NumpySession(integers=np.dtype(np.int32))

    np.testing.assert_array_equal(read(decoder(narrow)), read(decoder()))


def test_a_step_goes_on_at_the_highest_position_read() -> None:
    engine = decoder()
    extend(engine, np.array([1, 2]), np.array([[0, 1], [0, 9], [0, 4]]))

    assert engine.rope_position == 10
    engine.step(3)
    assert (engine.rope_position, engine.used) == (11, 3)


def test_a_step_allocates_and_binds_nothing() -> None:
    session = NumpySession()
    engine = decoder(session)
    read(engine)
    before = session.allocated, session.bound

    for _ in range(5):
        engine.step(4)

    assert (session.allocated, session.bound) == before


def test_chunks_of_one_length_share_their_buffers() -> None:
    session = NumpySession(capacity=64)
    engine = decoder(session, chunk=8)
    text(engine, *[1] * 8)
    before = session.allocated, session.bound

    text(engine, *[1] * 48)

    assert (session.allocated, session.bound) == before


def test_the_last_slot_is_used_and_the_step_after_it_refused() -> None:
    session = NumpySession(capacity=10)
    engine = decoder(session)
    read(engine)
    engine.step(1)
    runs = len(session.runs)

    with pytest.raises(NoSlotError, match="all 10 slots are used"):
        engine.step(1)
    assert len(session.runs) == runs
    assert engine.used == 10


def test_reset_forgets_the_sequence() -> None:
    engine = decoder()
    first = read(engine)
    engine.step(8)
    engine.reset()

    assert (engine.used, engine.rope_position, engine.keys.tolist()) == (0, 0, [])
    np.testing.assert_array_equal(read(engine), first)


def test_keys_name_what_is_in_the_state() -> None:
    engine = decoder()
    extend(
        engine, np.array([1, IMAGE_TOKEN]), POSITIONS[:, :2], PICTURES[:1], keys=np.array([1, -77])
    )
    engine.step(4)

    assert engine.keys.tolist() == [1, -77, 4]


@pytest.mark.parametrize("rows", [None, PICTURES[:2], np.concatenate([PICTURES, PICTURES])])
def test_picture_rows_must_match_picture_tokens_before_anything_runs(rows: Array | None) -> None:
    session = NumpySession()

    with pytest.raises(ImageRowsError, match="prompt has 3 picture tokens but"):
        extend(decoder(session), PROMPT, POSITIONS, rows)
    assert session.runs == []


def test_reading_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no token"):
        extend(decoder(), np.array([], np.int64), np.zeros((3, 0), np.int64))


def test_a_prompt_is_told_chunk_by_chunk() -> None:
    assert list(decoder(chunk=4).chunks(PROMPT, POSITIONS, PICTURES)) == [4, 8, 9]


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        (1, [1]),
        (64, [64]),
        (65, [65]),
        (79, [79]),
        (80, [64, 80]),
        (128, [64, 128]),
        (143, [64, 143]),
        (144, [64, 128, 144]),
    ],
)
def test_no_chunk_behind_another_is_short(tokens: int, ends: list[int]) -> None:
    assert chunk_ends(tokens, 64) == ends


def test_stopping_between_chunks_leaves_a_state_to_go_on_from() -> None:
    engine = decoder(chunk=4)

    assert next(engine.chunks(PROMPT, POSITIONS, PICTURES)) == 4
    assert engine.keys.tolist() == PROMPT[:4].tolist()
    rest = extend(engine, PROMPT[4:], POSITIONS[:, 4:], PICTURES[2:])
    np.testing.assert_array_equal(rest, read(decoder()))


def test_a_run_that_fails_leaves_the_state_as_it_was() -> None:
    session = NumpySession(aliases=False)
    engine = decoder(session)
    text(engine, 1, 2)
    reference = decoder()
    text(reference, 1, 2)

    session.before_run = failing
    with pytest.raises(RuntimeError):
        engine.step(3)
    session.before_run = lambda: None

    assert engine.keys.tolist() == [1, 2]
    np.testing.assert_array_equal(engine.step(3), reference.step(3))


def failing() -> None:
    raise RuntimeError("the graph failed")


class DyingSession(NumpySession):
    """Fails, where it is to, when its rows are written and before its run has ended."""

    dies = False

    def _run(self, reads: Mapping[str, Array], writes: Mapping[str, Array]) -> None:
        super()._run(reads, writes)
        if self.dies:
            raise RuntimeError("the graph failed")


@pytest.mark.parametrize(
    ("in_place", "aliases", "left"), [(True, False, [4]), (False, False, [4]), (True, True, [])]
)
def test_a_run_that_dies_part_way_leaves_no_snapshot_over_the_rows_it_wrote(
    in_place: bool, aliases: bool, left: list[int]
) -> None:
    """Where states are written over, it leaves no sequence either."""
    session = DyingSession(in_place=in_place, aliases=aliases)
    engine, reference = decoder(session), decoder()
    text(engine, 4)
    early = engine.snapshot()
    text(engine, 1, 2)
    late = engine.snapshot()
    engine.restore(early)

    session.dies = True
    with pytest.raises(RuntimeError, match="the graph failed"):
        engine.step(8)
    session.dies = False

    assert (engine.keys.tolist(), engine.rope_position) == (left, len(left))
    assert engine.holds(early)
    assert engine.holds(late) is not in_place
    if not left:
        np.testing.assert_array_equal(text(engine, 9), text(decoder(), 9))
        engine.reset()
        text(engine, 4)
    text(reference, 4)
    np.testing.assert_array_equal(text(engine, 1, 2), text(reference, 1, 2))


@pytest.mark.parametrize("aliases", [True, False])
def test_after_a_run_that_died_a_snapshot_is_gone_back_to_exactly(aliases: bool) -> None:
    session = DyingSession(aliases=aliases)
    engine, reference = decoder(session), decoder()
    text(engine, 4)
    early = engine.snapshot()

    session.dies = True
    with pytest.raises(RuntimeError, match="the graph failed"):
        engine.step(8)
    session.dies = False
    engine.restore(early)

    text(reference, 4)
    np.testing.assert_array_equal(text(engine, 1, 2), text(reference, 1, 2))


def test_states_that_are_written_over_have_one_buffer_until_something_is_tried() -> None:
    one, two = NumpySession(counts=True), NumpySession(counts=True, aliases=False)
    tried, plain = decoder(one), decoder(two)
    assert two.allocated - one.allocated == 2
    for engine in (tried, plain):
        text(engine, 1, 2)
        engine.step(3)
        engine.try_ahead((4, 5))
        engine.accept()
        engine.step(6)
    assert two.allocated == one.allocated

    np.testing.assert_array_equal(tried.step(7), plain.step(7))


@pytest.mark.parametrize("way", ["restore", "reset"])
def test_states_that_are_written_half_are_no_sequence_to_go_on_from(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = decoder()
    text(engine, 1, 2)
    snapshot = engine.snapshot()
    text(engine, 3)

    def fail(*_: object) -> None:
        raise RuntimeError("the copy failed")

    with monkeypatch.context() as patch:
        patch.setattr(NumpyBuffer, "write", fail)
        with pytest.raises(RuntimeError, match="the copy failed"):
            engine.restore(snapshot) if way == "restore" else engine.reset()

    assert engine.used == 0
    engine.restore(snapshot)
    assert engine.keys.tolist() == [1, 2]


@pytest.mark.parametrize("aliases", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_going_back_to_a_snapshot_is_exact(in_place: bool, aliases: bool) -> None:
    engine = decoder(NumpySession(in_place=in_place, aliases=aliases))
    read(engine)
    snapshot = engine.snapshot()
    first = [engine.step(token).copy() for token in (1, 2, 3)]
    engine.restore(snapshot)

    assert (engine.used, snapshot.count) == (9, 9)
    again = [engine.step(token).copy() for token in (1, 2, 3)]
    np.testing.assert_array_equal(again, first)


def test_a_snapshot_is_a_copy_with_a_size() -> None:
    engine = decoder()
    read(engine)
    snapshot = engine.snapshot()
    saved = {name: array.copy() for name, array in snapshot.states.items()}
    engine.step(1)
    engine.step(2)

    assert set(saved) == {"past_conv_0", "past_recurrent_0"}
    for name, array in saved.items():
        np.testing.assert_array_equal(snapshot.states[name], array)
    assert snapshot.nbytes == (18 + 36) * 4 + 9 * 8


def later_branch(engine: OneGraphDecoder) -> None:
    text(engine, 8, 9)


def same_length_other_ids(engine: OneGraphDecoder) -> None:
    text(engine, 1, 9)


def same_ids_after_another_past(engine: OneGraphDecoder) -> None:
    text(engine, 8, 2)
    engine.reset()
    text(engine, 4)
    engine.step(1)


@pytest.mark.parametrize(
    "overwrite", [later_branch, same_length_other_ids, same_ids_after_another_past]
)
def test_a_snapshot_whose_slots_were_written_again_is_refused(
    overwrite: Callable[[OneGraphDecoder], None],
) -> None:
    engine = decoder()
    text(engine, 4)
    early = engine.snapshot()
    text(engine, 1, 2)
    late = engine.snapshot()
    engine.restore(early)
    overwrite(engine)

    assert engine.holds(early)
    assert not engine.holds(late)
    with pytest.raises(ValueError, match="snapshot of 3 tokens were overwritten"):
        engine.restore(late)


def test_going_forward_again_works_while_nothing_was_written() -> None:
    engine, reference = decoder(), decoder()
    text(engine, 4)
    early = engine.snapshot()
    text(engine, 1, 2)
    late = engine.snapshot()
    engine.restore(early)
    engine.restore(late)
    text(reference, 4, 1, 2)

    np.testing.assert_array_equal(engine.step(3), reference.step(3))


def test_the_runtimes_time_is_reported() -> None:
    engine = decoder()
    read(engine)

    assert engine.predict_ms > 0


def test_every_graph_is_closed_even_where_one_cannot_be() -> None:
    class Stuck(NumpySession):
        def close(self) -> None:
            super().close()
            raise RuntimeFailure("the device does not answer")

    text, head = Stuck(counts=True, tells=True), NumpyHead()
    with pytest.raises(RuntimeFailure):
        OneGraphDecoder(text, head=head).close()

    assert text.closed
    assert head.closed
