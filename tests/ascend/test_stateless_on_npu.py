"""A prefill that takes no states: the conversation is read again, or goes through decode."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.ascend.gears import PromptGearError
from tests.ascend.conftest import Export
from tests.ascend.decoding import GEARS, IDS, SHAPE, Open, greedy, read
from tests.doubles.mindspore_lite.npu import Npu


def test_more_pictures_than_a_stateless_prefill_takes_are_refused(
    exported: Export, graphs: Open
) -> None:
    image = exported(SHAPE, **GEARS).config.image_token_id
    rows = np.zeros((20, exported(SHAPE, **GEARS).config.text.hidden_size), np.float32)
    decoder = graphs({"stateless_prefill": True}).decoder(image)

    with pytest.raises(PromptGearError, match="prompt has 21 tokens, 20 of pictures"):
        read(decoder, [*[image] * 20, 4], rows)


def test_a_stateless_prefill_reads_the_whole_conversation_again(
    exported: Export, graphs: Open
) -> None:
    decoder = graphs({"stateless_prefill": True}).decoder()
    whole = graphs().decoder()
    first = greedy(decoder, read(decoder, IDS), 3)
    more = [first[-1], *range(20, 30)]
    logits = read(decoder, more)

    assert "from the first token on" in decoder.route
    np.testing.assert_allclose(logits, read(whole, [*IDS, *first[:-1], *more]), atol=0.02)
    assert decoder.keys.tolist() == [*IDS, *first[:-1], *more]


def test_a_stateless_prefill_takes_few_tokens_through_decode(graphs: Open, npu: Npu) -> None:
    decoder = graphs({"stateless_prefill": True}).decoder()
    read(decoder, IDS)
    before = npu.predicts
    read(decoder, [20])

    assert (decoder.route.split(",")[0], npu.predicts - before) == ("1 tokens: decode 1", 1)


def test_a_stateless_prefill_remembers_pictures(exported: Export, graphs: Open) -> None:
    config = exported(SHAPE, **GEARS).config
    image = config.image_token_id
    rows = np.random.default_rng(3).normal(size=(4, config.text.hidden_size)).astype(np.float32)
    decoder = graphs({"stateless_prefill": True}).decoder(image)
    whole = graphs().decoder(image)
    read(decoder, [3, *[image] * 4, 8], rows)
    logits = read(decoder, list(range(20, 32)))

    assert "from the first token on" in decoder.route
    wanted = read(whole, [3, *[image] * 4, 8, *range(20, 32)], rows)
    np.testing.assert_allclose(logits, wanted, atol=0.02)
