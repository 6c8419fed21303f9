from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array, TensorSpec
from q35chat.engine.slots import CapacityMismatchError
from q35chat.engine.speculation import (
    HEAD_LENGTHS,
    DraftSource,
    HeadDrafter,
    Odds,
    Speculator,
    speculator,
)
from q35chat.errors import BundleError
from tests.doubles.numpy_head import NumpyHead
from tests.doubles.numpy_session import IMAGE_TOKEN, NumpySession

PROMPT = np.array([7, 1, 2, 9, 11, 3])


class Model:
    """A decoder with a head, both in reach."""

    def __init__(self, capacity: int = 40, chunk: int = 4, image_token: int = -1) -> None:
        self.text = NumpySession(capacity=capacity, counts=True, tells=True)
        self.head = NumpyHead(capacity=capacity)
        self.decoder = OneGraphDecoder(
            self.text, head=self.head, image_token_id=image_token, chunk=chunk
        )

    def read(self, ids: Array = PROMPT, rows: Array | None = None) -> None:
        start = self.decoder.rope_position
        positions = np.tile(np.arange(start, start + len(ids)), (3, 1))
        if rows is not None:
            positions[1] += ids == IMAGE_TOKEN
        extend(self.decoder, ids, positions, rows)

    def write(self, count: int, *, mode: str = "mtp") -> tuple[list[int], Speculator]:
        """`count` greedy tokens, the last of them not read."""
        steps = speculator(self.decoder, Odds(), (), "mtp" if mode == "mtp" else "off")
        tokens = [int(self.decoder.logits().argmax())]
        while len(tokens) < count:
            tokens.append(int(steps.step(tokens[-1]).argmax()))
        return tokens, steps

    def guess(self, tokens: list[int], *, wrong: float = 0.0, seed: int = 1) -> None:
        """Make the head say `tokens`, which follow what is there, now and then another."""
        chance, used = np.random.default_rng(seed), self.decoder.used
        for place, token in enumerate(tokens[1:]):
            said = (token + 1) % self.head.vocab if chance.random() < wrong else token
            self.head.says[used - 1 + place] = said


def _go_on(steps: Speculator, tokens: list[int]) -> None:
    for token in tokens:
        steps.step(token)


def by_odds(model: Model) -> Speculator:
    """Drafts by the head alone, where they are expected to win."""
    assert model.decoder.head is not None
    drafter = HeadDrafter(model.decoder, model.decoder.head)
    odds = Odds(timed=False, head=True)
    return Speculator(model.decoder, [DraftSource(drafter, odds, HEAD_LENGTHS, shortest=1)])


def assert_knows_all(model: Model) -> None:
    """The head's cache is that of a head that read every pair once, in order."""
    engine = model.decoder
    engine.snapshot()
    fresh = Model(engine.capacity, chunk=1)
    fresh.read(engine.keys)
    fresh.decoder.snapshot()
    assert fresh.decoder.used == engine.used
    for name, cache in fresh.head.caches.items():
        known = slice(0, engine.used - 1)
        np.testing.assert_array_equal(model.head.caches[name][:, :, known], cache[:, :, known])


@pytest.mark.parametrize("chunk", [1, 2, 4, 64])
def test_a_prompt_is_read_in_pairs(chunk: int) -> None:
    model = Model(chunk=chunk)
    model.read()

    assert_knows_all(model)


def test_picture_rows_and_positions_reach_the_head() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    ids = np.array([7, IMAGE_TOKEN, IMAGE_TOKEN, 2, IMAGE_TOKEN, 9])
    model, whole = (Model(chunk=chunk, image_token=IMAGE_TOKEN) for chunk in (2, 64))
    for each in (model, whole):
        each.read(ids, rows)
        each.decoder.snapshot()

    found = model.head.caches["key_0"][0, 0]
    np.testing.assert_array_equal(found, whole.head.caches["key_0"][0, 0])
    np.testing.assert_array_equal(found[[0, 1, 3], 6:12], rows)
    assert found[:5, 13].tolist() == [0, 2, 3, 3, 5]


@pytest.mark.parametrize("wrong", [0.0, 0.4, 1.0])
def test_drafts_change_no_token_and_leave_the_head_as_if_there_had_been_none(wrong: float) -> None:
    plain, model = Model(), Model()
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(20, mode="off")
    model.guess(wanted, wrong=wrong)

    found, steps = model.write(20)

    assert found == wanted
    assert steps.drafted > 0
    assert (steps.accepted == 0) == (wrong == 1.0)
    assert model.decoder.keys.tolist() == plain.decoder.keys.tolist()
    assert_knows_all(model)


def test_right_drafts_are_all_accepted_and_save_runs() -> None:
    plain, model = Model(), Model()
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(20, mode="off")
    model.guess([*wanted, *wanted])
    model.text.runs.clear()

    _, steps = model.write(20)

    assert steps.drafted - steps.accepted < max(HEAD_LENGTHS)
    assert len(model.text.runs) <= 10


def test_a_draft_is_one_run_for_all_that_waits_and_one_for_each_further_token() -> None:
    model = Model()
    model.read()
    model.decoder.snapshot()
    for token in (4, 8, 15):
        model.decoder.step(token)
    model.head.runs.clear()

    head = model.decoder.head
    assert head is not None
    drafts = head.draft(16, 3, model.decoder.rope_position)

    used = model.decoder.used
    assert len(drafts) == 3
    assert model.head.runs == [(4, used - 4), (1, used), (1, used + 1)]


def test_a_draft_goes_on_from_its_own_tokens() -> None:
    model = Model()
    model.read()
    head = model.decoder.head
    assert head is not None
    first, second = head.draft(16, 2, model.decoder.rope_position)
    key = model.head.caches["key_0"][0, 0, model.decoder.used]

    np.testing.assert_array_equal(key[6:12], model.head._embed[first])
    assert key[12:].tolist() == [model.decoder.rope_position] * 3
    assert second == int((model.head._embed @ _next_hidden(model)).argmax())


def _next_hidden(model: Model) -> Array:
    head = model.decoder.head
    assert head is not None
    hidden: Array = head._next.host()[0, 0]
    return hidden


def test_a_pair_that_was_read_for_a_draft_is_not_read_again() -> None:
    model = Model()
    model.read()
    head = model.decoder.head
    assert head is not None
    head.draft(16, 1, model.decoder.rope_position)
    model.decoder.step(16)
    model.head.runs.clear()

    model.decoder.snapshot()

    assert model.head.runs == []
    assert_knows_all(model)


def test_another_token_than_the_one_drafted_for_is_read() -> None:
    model = Model()
    model.read()
    head = model.decoder.head
    assert head is not None
    head.draft(16, 2, model.decoder.rope_position)

    model.decoder.step(4)

    assert_knows_all(model)


def test_steps_without_drafts_are_read_many_at_once() -> None:
    model = Model(capacity=200)
    model.read()
    model.decoder.snapshot()
    model.head.runs.clear()
    for token in range(130):
        model.decoder.step(token % 20 + 6 if token % 20 + 6 < 23 else 3)

    assert [count for count, _ in model.head.runs] == [64, 64]
    assert_knows_all(model)


@pytest.mark.parametrize("written", [1, 4, 9])
def test_going_back_and_going_on_another_way(written: int) -> None:
    model, plain = Model(), Model()
    for each in (model, plain):
        each.read()
    start = model.decoder.snapshot()
    wanted, _ = plain.write(14, mode="off")
    model.guess(wanted, wrong=0.3)
    model.write(written)
    model.decoder.restore(start)
    model.read(np.array([4, 4, 8]))
    other = Model()
    other.read()
    other.read(np.array([4, 4, 8]))

    found, _ = model.write(10)

    assert found == other.write(10, mode="off")[0]
    assert_knows_all(model)


def test_a_snapshot_between_tries_can_be_gone_back_to() -> None:
    plain, model = Model(), Model()
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(20, mode="off")
    model.guess(wanted, wrong=0.4)
    steps = speculator(model.decoder, Odds(), (), "mtp")
    _go_on(steps, wanted[:7])
    kept = model.decoder.snapshot()
    for token in wanted[7:12]:
        model.decoder.step(token)

    model.decoder.restore(kept)

    assert_knows_all(model)
    _go_on(steps, wanted[7:15])
    assert_knows_all(model)


def test_a_reset_forgets_everything() -> None:
    model = Model()
    model.read()
    model.write(5)

    model.decoder.reset()
    model.read(np.array([3, 4, 6]))

    assert_knows_all(model)


@pytest.mark.parametrize("left", range(1, 9))
def test_the_last_slot_is_used_and_nothing_is_drafted_beyond_it(left: int) -> None:
    plain, model = (Model(len(PROMPT) + left) for _ in range(2))
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(left + 1, mode="off")
    model.guess([*wanted, 3, 3, 3, 3])

    found, _ = model.write(left + 1)

    assert found == wanted
    assert model.decoder.used == model.decoder.capacity
    assert_knows_all(model)


def test_a_head_that_fails_leaves_a_decoder_to_go_on_with() -> None:
    plain, model = Model(), Model()
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(8, mode="off")

    def fail() -> None:
        raise RuntimeError("out of memory")

    steps = speculator(model.decoder, Odds(), (), "mtp")
    steps.step(wanted[0])
    model.head.before_run = fail
    with pytest.raises(RuntimeError, match="out of memory"):
        _go_on(steps, wanted[1:])
    model.head.before_run = lambda: None

    _go_on(steps, wanted[model.decoder.used - len(PROMPT) : 7])
    assert model.decoder.logits().argmax() == wanted[7]
    assert_knows_all(model)


def test_the_time_of_drafts_counts_as_time_in_the_runtime() -> None:
    model = Model()
    model.read()
    steps = speculator(model.decoder, Odds(), (), "mtp")
    steps.step(4)

    head = model.decoder.head
    assert head is not None
    assert head.milliseconds > 0
    assert steps.predict_ms == head.milliseconds + model.decoder.predict_ms


def test_by_odds_a_head_that_is_wrong_is_soon_left_alone() -> None:
    plain, model = Model(200), Model(200)
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(100, mode="off")
    model.guess(wanted, wrong=1.0)
    steps = by_odds(model)
    _go_on(steps, wanted[:-1])

    assert 0 < steps.drafted < 5
    assert steps.accepted == 0


def test_by_odds_a_head_that_is_right_is_used_more_and_more() -> None:
    plain, model = Model(200), Model(200)
    for each in (plain, model):
        each.read()
    wanted, _ = plain.write(150, mode="off")
    model.guess(wanted)
    steps = by_odds(model)
    _go_on(steps, wanted[:-1])

    assert steps.accepted > 70
    assert steps.drafted - steps.accepted < max(HEAD_LENGTHS)  # those beyond the last token


def test_on_auto_what_was_said_and_the_head_both_draft() -> None:
    plain, model = Model(200), Model(200)
    for each in (plain, model):
        each.read()
    cycle = [int(token) for token in np.random.default_rng(3).permutation(20)]
    fresh, repeated = [22, 21, 20, *cycle], cycle * 3
    wanted = [*fresh, *repeated]
    for each in (plain, model):
        first = each.decoder.used - 1
        each.text.says = {first + place: token for place, token in enumerate(wanted)}
    model.guess(wanted[: len(fresh)])
    model.head.says |= {model.decoder.used + place: 22 for place in range(len(fresh), 120)}
    steps = speculator(model.decoder, Odds(timed=False), (), "auto", Odds(timed=False, head=True))
    _go_on(steps, fresh)
    by_head = steps.accepted
    _go_on(steps, repeated)

    assert by_head > 3
    assert steps.accepted - by_head > 30
    assert_knows_all(model)


def test_a_decoder_without_a_head_drafts_nothing() -> None:
    session = NumpySession(counts=True)
    engine = OneGraphDecoder(session)
    extend(engine, PROMPT, np.tile(np.arange(6), (3, 1)))

    steps = speculator(engine, Odds(), PROMPT, "mtp")
    steps.step(3)

    assert engine.head is None
    assert steps.drafted == 0


def test_closing_frees_the_head() -> None:
    model = Model()
    model.decoder.close()

    assert model.text.closed
    assert model.head.closed


def test_a_text_graph_that_tells_no_hidden_states_is_refused() -> None:
    with pytest.raises(BundleError, match="nothing to read: export the bundle again, with --mtp"):
        OneGraphDecoder(NumpySession(counts=True), head=NumpyHead())


def test_a_head_of_another_width_or_capacity_is_refused() -> None:
    text = NumpySession(counts=True, tells=True)
    with pytest.raises(BundleError, match="rows of 6 numbers, its draft head takes 8"):
        OneGraphDecoder(text, head=NumpyHead(width=8))
    with pytest.raises(CapacityMismatchError):
        OneGraphDecoder(text, head=NumpyHead(capacity=17))


@pytest.mark.parametrize("name", ["input_ids", "hidden", "position_ids", "image_embeds"])
def test_a_head_without_one_of_its_tensors_is_refused(name: str) -> None:
    class Lacking(NumpyHead):
        @property
        def inputs(self) -> tuple[TensorSpec, ...]:
            return tuple(spec for spec in super().inputs if spec.name != name)

    with pytest.raises(BundleError, match=f"mtp graph has no tensor '{name}'"):
        OneGraphDecoder(NumpySession(counts=True, tells=True), head=Lacking())
