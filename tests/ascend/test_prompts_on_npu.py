"""Prompts of any length, with pictures, in one call or in pieces, through the stand-in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ascend.conftest import Export
from tests.ascend.decoding import GEARS, IDS, SHAPE, Open, greedy, read
from tests.doubles.mindspore_lite.npu import Npu


@pytest.mark.parametrize("count", [1, 8, 11, 33, 41])
def test_any_length_gives_the_logits_of_one_call(
    exported: Export, graphs: Open, count: int
) -> None:
    ids = [(7 * place + 3) % 300 for place in range(count)]
    decoder = graphs().decoder()
    whole = graphs({"gears": (48,)}).decoder()
    logits, wanted = read(decoder, ids), read(whole, ids)

    np.testing.assert_allclose(logits, wanted, atol=0.02)
    assert greedy(decoder, logits, 6) == greedy(whole, wanted, 6)


def test_a_conversation_goes_on_from_its_state(exported: Export, graphs: Open, npu: Npu) -> None:
    decoder, whole = graphs().decoder(), graphs().decoder()
    first = greedy(decoder, read(decoder, IDS), 4)
    logits = read(decoder, [first[-1], 20, 21, 22])
    wanted = read(whole, [*IDS, *first, 20, 21, 22])

    assert decoder.used == whole.used == len(IDS) + 7
    np.testing.assert_allclose(logits, wanted, atol=0.02)


def test_pictures_are_read_whole_and_in_pieces(exported: Export, graphs: Open) -> None:
    config = exported(SHAPE, **GEARS).config
    image = config.image_token_id
    ids = [4, *[image] * 20, 9, 10]
    rows = np.random.default_rng(3).normal(size=(20, config.text.hidden_size)).astype(np.float32)
    pieces = graphs().decoder(image)
    whole = graphs({"image_gears": (32,), "gears": (32,)}).decoder(image)

    np.testing.assert_allclose(read(pieces, ids, rows), read(whole, ids, rows), atol=0.02)
    assert pieces.route != whole.route


def test_a_text_after_a_picture_sees_no_rows_of_it(exported: Export, graphs: Open) -> None:
    config = exported(SHAPE, **GEARS).config
    image, rows = config.image_token_id, np.ones((4, config.text.hidden_size), np.float32)
    decoder, fresh = graphs().decoder(image), graphs().decoder(image)
    read(decoder, [4, *[image] * 4], rows)
    decoder.reset()

    np.testing.assert_array_equal(read(decoder, IDS), read(fresh, IDS))


def test_stopping_between_pieces_leaves_a_state_to_go_on_from(graphs: Open) -> None:
    ids = [(7 * place + 3) % 300 for place in range(40)]
    stopped, whole = graphs().decoder(), graphs().decoder()
    positions = np.tile(np.arange(40), (3, 1))
    done = next(stopped.chunks(np.array(ids), positions))

    assert stopped.keys.tolist() == ids[:done]
    assert 0 < done < 40
    np.testing.assert_allclose(read(stopped, ids[done:]), read(whole, ids), atol=0.02)
