"""Every filter against transformers' own processors, on random logits of a whole vocabulary."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from q35chat.engine.sampling import min_p, penalise_repetition, top_k, top_p
from q35chat.engine.session import Array

pytestmark = pytest.mark.parity


@pytest.fixture
def torch() -> Any:
    return import_module("torch")


@pytest.fixture
def transformers(torch: Any) -> Any:
    return import_module("transformers")


def scores(seed: int) -> Array:
    random = np.random.default_rng(seed)
    return random.normal(0, random.uniform(0.5, 6), 248_320).astype(np.float32)


def kept_by(torch: Any, warper: Any, values: Array) -> list[int]:
    kept = warper(torch.zeros((1, 1), dtype=torch.long), torch.from_numpy(values)[None])[0]
    found: list[int] = torch.isfinite(kept).nonzero().ravel().tolist()
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("ours", "theirs", "value"),
    [
        *((top_k, "TopKLogitsWarper", k) for k in (1, 20, 700)),
        *((top_p, "TopPLogitsWarper", p) for p in (0.1, 0.8, 0.95)),
        *((min_p, "MinPLogitsWarper", p) for p in (0.001, 0.05, 0.5)),
    ],
)
def test_a_filter_keeps_what_transformers_keeps(
    torch: Any, transformers: Any, seed: int, ours: Any, theirs: str, value: float
) -> None:
    values = scores(seed)
    if ours is top_p:
        # transformers adds 248,320 float32 probabilities up from the smallest: its edge is blurred
        values = values[top_k(values, 50)]
    kept = kept_by(torch, getattr(transformers, theirs)(value), values)
    found = ours(values, value).tolist()
    assert (sorted(found) if ours is top_p else found) == kept


@pytest.mark.parametrize("penalty", [0.8, 1.1, 2.0])
def test_repetition_equals_transformers(torch: Any, transformers: Any, penalty: float) -> None:
    values = scores(3)
    seen = [4, 9, 9, 248_319, 17]
    expected = transformers.RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([seen]), torch.from_numpy(values.copy())[None]
    )

    np.testing.assert_array_equal(
        penalise_repetition(values, set(seen), penalty), expected[0].numpy()
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_whole_chain_leaves_the_distribution_of_generate(
    torch: Any, transformers: Any, seed: int
) -> None:
    values = scores(seed)
    seen = np.argsort(-values)[:5].tolist()
    chain = transformers.LogitsProcessorList(
        [
            transformers.RepetitionPenaltyLogitsProcessor(1.2),
            transformers.TemperatureLogitsWarper(0.7),
            transformers.TopKLogitsWarper(40),
            transformers.TopPLogitsWarper(0.9),
            transformers.MinPLogitsWarper(0.02),
        ]
    )
    expected = chain(torch.tensor([seen]), torch.from_numpy(values.copy())[None])[0].numpy()

    chosen = penalise_repetition(values, seen, 1.2) / np.float32(0.7)
    ids = top_k(chosen, 40)
    ids = ids[top_p(chosen[ids], 0.9)]
    ids = np.sort(ids[min_p(chosen[ids], 0.02)])

    assert ids.tolist() == np.flatnonzero(np.isfinite(expected)).tolist()
    np.testing.assert_array_equal(chosen[ids], expected[ids])
