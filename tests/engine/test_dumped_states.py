"""A sequence put into another decoder, in another process, goes on to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from tests.doubles.numpy_session import NumpySession
from tests.engine.test_decoder import decoder, read, text
from tests.engine.test_draft_head import Model

Dump = dict[str, Array]


def dumped(engine: OneGraphDecoder) -> Dump:
    return {name: array.copy() for name, array in engine.dump(engine.snapshot())}


@pytest.mark.parametrize("aliases", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_what_follows_is_the_same_to_the_bit_after_pictures_and_steps(
    in_place: bool, aliases: bool
) -> None:
    left, opened = (decoder(NumpySession(in_place=in_place, aliases=aliases)) for _ in range(2))
    read(left), left.step(4)
    text(opened, 1, 2, 3)
    opened.load(dumped(left))

    assert (opened.used, opened.rope_position) == (left.used, left.rope_position)
    assert opened.keys.tolist() == left.keys.tolist()
    for token in (3, 8):
        np.testing.assert_array_equal(opened.step(token), left.step(token))
    np.testing.assert_array_equal(text(opened, 10, 6, 7), text(left, 10, 6, 7))


def test_an_earlier_point_can_be_dumped_as_long_as_its_rows_are_there() -> None:
    left, opened = decoder(), decoder()
    read(left)
    point = left.snapshot()
    wanted = text(left, 1, 2)
    opened.load(dict(left.dump(point)))
    np.testing.assert_array_equal(text(opened, 1, 2), wanted)
    left.reset()
    text(left, 9)
    with pytest.raises(ValueError, match="overwritten"):
        dict(left.dump(point))


def test_snapshots_of_other_tokens_are_lost() -> None:
    left, opened = decoder(), decoder()
    text(left, 7, 1, 2), text(opened, 7, 4)
    point = opened.snapshot()
    opened.load(dumped(left))
    assert not opened.holds(point)
    assert opened.holds(opened.snapshot())


def test_tokens_that_were_tried_ahead_are_read_before() -> None:
    left, plain, opened = (Model().decoder for _ in range(3))
    for engine in (left, plain):
        text(engine, 7, 1, 2)
    left.try_ahead((3, 4, 5))
    left.accept(), left.accept()
    plain.step(3), plain.step(4)
    opened.load(dumped(left))
    np.testing.assert_array_equal(opened.step(9), plain.step(9))


def test_a_draft_head_guesses_on_as_if_it_had_read_all() -> None:
    left, opened = Model(), Model()
    left.read()
    left.write(6)
    opened.decoder.load(dumped(left.decoder))
    assert left.decoder.head is not None
    assert opened.decoder.head is not None
    place = left.decoder.rope_position
    wanted = left.decoder.head.draft(3, 4, place)

    assert opened.decoder.head.draft(3, 4, place) == wanted
    assert left.write(8)[0] == opened.write(8)[0]


def _without(name: str) -> Callable[[Dump], object]:
    return lambda arrays: arrays.pop(name)


def _with(name: str, value: Array) -> Callable[[Dump], object]:
    return lambda arrays: arrays.update({name: value})


@pytest.mark.parametrize(
    "harm",
    [
        _without("keys"),
        _without("rope_position"),
        _without("past_conv_0"),
        _without("past_value_1"),
        _without("mtp_hidden"),
        _without("mtp_past_key_0"),
        _with("keys", np.zeros(0, np.int64)),
        _with("keys", np.zeros((6, 1), np.int64)),
        _with("keys", np.zeros(6, np.int32)),
        _with("keys", np.zeros(5, np.int64)),
        _with("keys", np.zeros(9999, np.int64)),
        _with("rope_position", np.array([-1], np.int64)),
        _with("rope_position", np.array([7], np.int64)),
        _with("rope_position", np.array([1.0])),
        _with("past_conv_0", np.zeros((1, 6, 2), np.float32)),
        _with("past_conv_0", np.zeros((1, 6, 3), np.float16)),
        _with("past_key_1", np.zeros((1, 1, 5, 6), np.float32)),
        _with("past_key_1", np.zeros((6,), np.float32)),
        _with("past_key_1", np.zeros((), np.float32)),
        _with("mtp_position", np.zeros(2, np.int64)),
    ],
)
def test_what_does_not_fit_is_refused_and_the_decoder_can_be_used(
    harm: Callable[[Dump], object],
) -> None:
    left, opened, fresh = Model(), Model(), Model()
    left.read()
    opened.read(np.array([4, 5]))
    arrays = dumped(left.decoder)
    harm(arrays)
    with pytest.raises(ValueError, match=r"."):
        opened.decoder.load(arrays)

    if opened.decoder.used:  # it was refused before anything was touched
        assert opened.decoder.keys.tolist() == [4, 5]
        opened.decoder.reset()
    np.testing.assert_array_equal(text(opened.decoder, 1, 2), text(fresh.decoder, 1, 2))
