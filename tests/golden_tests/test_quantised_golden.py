"""Quantised graphs are the FP32 graph with rounded weights, and the rounding is what it should be.

The FP32 graph is proven by the other golden tests. So a checkpoint is written with the weights
that the quantised bundle really stores, and exported in FP32: in FP32 arithmetic both must agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.verify.candidate import Candidate, exact_copy
from q35export.verify.metrics import WEIGHTS, difference
from q35export.verify.reference import Float32
from q35export.verify.stored_weights import StoredTensor, stored_weights
from tests.support.checkpoints import SHAPES
from tests.support.exported import Exported, export_checkpoint, export_golden
from tests.support.rewriting import rewrite_checkpoint

STEPS = 24

# One projection rounds its input by 0.54 % of itself (peak of 32 normal values / 127 / sqrt(12)).
# These checkpoints have 9 to 29 projections in a row; noise adds up as the root of their number
# (0.029), and random layers pass it on somewhat larger.
INT8_INPUTS = 0.0054 * 29**0.5 * 1.5


@dataclass(frozen=True, slots=True)
class Pair:
    """A quantised bundle, and an FP32 bundle of the weights that it stores."""

    exported: Exported
    stored: Mapping[str, StoredTensor]
    rounded: Bundle


@pytest.fixture(scope="module", params=[(s, p) for s in SHAPES for p in ("int8", "int4")], ids=str)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    shape, precision = request.param
    exported = export_golden(shape, tmp_path_factory, precision)
    folder = tmp_path_factory.mktemp("rounded")
    stored = dict(stored_weights(exported.bundle, load_config(exported.checkpoint)))
    weights = {name: tensor.values for name, tensor in stored.items()}
    rounded = rewrite_checkpoint(exported.checkpoint, folder / "in", weights)
    return Pair(exported, stored, export_checkpoint(rounded, folder / "out"))


def follow(candidate: Candidate, exported: Exported, sample: str) -> Float32:
    case = exported.golden.case(sample)
    return candidate.follow(exported.prompt(case), np.array(case.tokens[:STEPS]))


def test_every_matrix_of_the_decoder_is_rounded_as_little_as_its_bits_allow(pair: Pair) -> None:
    checkpoint = Checkpoint.open(pair.exported.checkpoint)
    assert {tensor.bits for tensor in pair.stored.values()} >= {8}
    for name, tensor in pair.stored.items():
        found = difference(tensor.values, checkpoint.read(name))
        assert not WEIGHTS[tensor.bits].broken_by(found), f"{name}: {found}"


def test_the_graph_adds_no_error_of_its_own(pair: Pair) -> None:
    rounded = Candidate(pair.rounded, threads=1)
    with exact_copy(pair.exported.bundle) as copy:
        exact = Candidate(copy, threads=1)
        for sample in ("text", "three pictures"):
            wanted = follow(rounded, pair.exported, sample)
            np.testing.assert_allclose(follow(exact, pair.exported, sample), wanted, atol=1e-3)
        exact.close()


def test_rounded_inputs_cost_no_more_than_the_model_of_them_says(pair: Pair) -> None:
    rounded, running = (
        Candidate(bundle, threads=1) for bundle in (pair.rounded, pair.exported.bundle)
    )
    samples = ("text", "long text", "three pictures")
    wanted = np.concatenate([follow(rounded, pair.exported, sample) for sample in samples])
    found = np.concatenate([follow(running, pair.exported, sample) for sample in samples])
    assert difference(found, wanted).nrmse <= INT8_INPUTS
    agreement = (found.argmax(-1) == wanted.argmax(-1)).mean()
    assert agreement >= least_agreement(wanted, INT8_INPUTS * rms(wanted))


def least_agreement(logits: Float32, noise: float) -> float:
    """The share of first places that survive noise of this RMS, less three standard errors.

    The difference of two logits gets sqrt(2) times the noise of one; a lead of `d` survives with
    probability `Phi(d / (sqrt(2) * noise))`.
    """
    best = np.sort(logits, axis=-1)[:, -2:]
    lead = (best[:, 1] - best[:, 0]) / (2**0.5 * noise)
    keeps = np.array([0.5 * (1 + math.erf(z / 2**0.5)) for z in lead])
    spread = float(np.sqrt((keeps * (1 - keeps)).sum())) / len(keeps)
    return float(keeps.mean()) - 3 * spread


def rms(values: Float32) -> float:
    return float(np.sqrt(np.square(values).mean()))
