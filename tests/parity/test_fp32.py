"""The FP32 graphs through the engine beside transformers' own model, live."""

from __future__ import annotations

import numpy as np
import pytest

from q35export.verify.compare import aligned
from q35export.verify.metrics import difference
from q35export.verify.reference import Float32
from q35export.verify.samples import Sample
from tests.parity.live import Live
from tests.support.golden import SAMPLES

pytestmark = pytest.mark.parity

SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


@SAMPLE
def test_every_state_after_the_prompt_is_that_of_transformers(live: Live, sample: Sample) -> None:
    prompt = live.reference.encode(sample)
    wanted, found = live.reference.prefill(prompt), live.candidate.prefill(prompt)
    assert wanted.states.keys() == found.states.keys()
    assert_same(found.logits, wanted.logits)
    for name, state in wanted.states.items():
        assert_same(aligned(found.states[name], state), state)


@SAMPLE
def test_q35chat_prepares_pictures_as_the_reference_processor_does(
    live: Live, sample: Sample
) -> None:
    wanted = live.reference.encode(sample)
    found = live.exported.prompt(live.exported.golden.case(sample.name))
    np.testing.assert_array_equal(found.ids, wanted.ids)
    for mine, theirs in zip(found.pictures, wanted.pictures, strict=True):
        assert (mine.grid_h, mine.grid_w) == (theirs.grid_h, theirs.grid_w)
        np.testing.assert_array_equal(mine.values, theirs.values)


def assert_same(found: Float32, wanted: Float32) -> None:
    """Equal but for the order of FP32 sums: measured 1e-5 at most."""
    measured = difference(found, wanted)
    assert measured.nrmse < 1e-4, measured
    assert measured.max_abs < 1e-3, measured
