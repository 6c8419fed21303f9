"""The exported FP32 graphs through the engine: tokens, logits and embeddings of transformers."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.engine.decoder import extend
from q35export.verify.candidate import Candidate
from q35export.verify.metrics import difference
from tests.support.checkpoints import SHAPES
from tests.support.exported import Exported, greedy_tokens
from tests.support.golden import TOKENS, GoldenCase, embedding_numbers

# FP32 sums in another order: measured 1e-4 at most, on logits of about 3.
LOGITS = 1e-3
NRMSE = 1e-4
EMBEDDINGS = 1e-4


def test_greedy_tokens_are_those_of_transformers(
    exported: Exported, candidate: Candidate, case: GoldenCase
) -> None:
    greedy = greedy_tokens(candidate, exported.prompt(case), TOKENS)
    assert tuple(greedy.tokens.tolist()) == case.tokens
    wanted = exported.golden.numbers[f"{case.sample} logits"]
    np.testing.assert_allclose(greedy.logits[[0, -1]], wanted, atol=LOGITS)


def test_greedy_tokens_are_the_same_where_rows_of_the_caches_are_read(
    exported: Exported, candidate: Candidate, case: GoldenCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("q35chat.engine.contract._WORTH_SLOTS", 0)
    greedy = greedy_tokens(candidate, exported.prompt(case), TOKENS)
    assert tuple(greedy.tokens.tolist()) == case.tokens
    wanted = exported.golden.numbers[f"{case.sample} logits"]
    np.testing.assert_allclose(greedy.logits[[0, -1]], wanted, atol=LOGITS)


def test_positions_are_those_of_transformers(
    exported: Exported, candidate: Candidate, case: GoldenCase
) -> None:
    positions = candidate.positions(exported.prompt(case))
    np.testing.assert_array_equal(positions, case.positions)


def test_pictures_become_the_embeddings_of_transformers(
    exported: Exported, candidate: Candidate, case: GoldenCase
) -> None:
    pictures = exported.prompt(case).pictures
    assert tuple((picture.grid_h, picture.grid_w) for picture in pictures) == case.grids
    for number, picture in enumerate(pictures):
        found = embedding_numbers(case.sample, number, candidate.vision(picture))
        for name, numbers in found.items():
            wanted = exported.golden.numbers[name]
            np.testing.assert_allclose(numbers, wanted, atol=EMBEDDINGS, rtol=EMBEDDINGS)


@pytest.mark.parametrize("name", ["text", "three pictures"])
def test_every_chunk_length_gives_the_same_answer(
    exported: Exported, candidate: Candidate, name: str
) -> None:
    """Shapes share the lengths: each has a seventh of them, and tokens one by one."""
    case, place = exported.golden.case(name), list(SHAPES).index(exported.golden.shape)
    prompt = exported.prompt(case)
    positions, embeds = candidate.positions(prompt), candidate.embeds(prompt)
    wanted = exported.golden.numbers[f"{name} logits"][0]
    for chunk in (1, *range(2 + place, len(prompt.ids) + 1, len(SHAPES))):
        decoder = candidate.new_decoder(chunk)
        logits = extend(decoder, prompt.ids, positions, embeds)
        assert logits is not None
        apart = difference(logits, wanted)
        assert apart.max_abs < LOGITS, f"chunks of {chunk}: {apart}"
        assert apart.nrmse < NRMSE, f"chunks of {chunk}: {apart}"
        tokens = [int(logits.argmax())]
        while len(tokens) < 4:
            tokens.append(int(decoder.step(tokens[-1]).argmax()))
        assert tuple(tokens) == case.tokens[:4], f"chunks of {chunk}"
