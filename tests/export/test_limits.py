"""What block quantisation may do to weights, at the largest block."""

from __future__ import annotations

import numpy as np
import pytest

from q35export.quantize import BlockFormat, dequantize, quantize
from q35export.request import BLOCK_SIZES
from q35export.verify.metrics import WEIGHTS, Difference, difference
from tests.support.block_arithmetic import Floats

LARGEST = max(BLOCK_SIZES)


def rounding(weights: Floats, bits: int, block: int = LARGEST) -> Difference:
    fmt = BlockFormat(bits, block)
    codes, scales = quantize(weights, fmt)
    return difference(dequantize(codes, scales, weights.shape[1], fmt), weights)


@pytest.mark.parametrize("block", BLOCK_SIZES)
def test_the_worst_weights_of_any_block_hold_the_limit_of_eight_bits(block: int) -> None:
    weights = np.full((4, block), 0.4999 / 127, np.float32)
    weights[:, 0] = 1  # all others lie half a step from their codes
    found = rounding(weights, 8, block)
    assert found.nrmse > 0.98 * block**0.5 / 254
    assert not WEIGHTS[8].broken_by(found)


@pytest.mark.parametrize(("bits", "usual"), [(8, 0.0065), (4, 0.0974)])
def test_a_bell_curve_lies_far_inside(bits: int, usual: float) -> None:
    weights = np.random.default_rng(1).standard_normal((256, 1024), np.float32)
    found = rounding(weights, bits)
    assert found.nrmse == pytest.approx(usual, rel=0.02)
    assert not WEIGHTS[bits].broken_by(found)


def test_heavy_tails_hold_the_limit_of_four_bits() -> None:
    weights = np.random.default_rng(1).standard_t(3, (256, 1024)).astype(np.float32)
    found = rounding(weights, 4)
    assert found.nrmse > 0.15
    assert not WEIGHTS[4].broken_by(found)


@pytest.mark.parametrize("bits", [4, 8])
def test_scales_of_another_row_break_it(bits: int) -> None:
    weights = np.random.default_rng(1).standard_normal((64, 1024), np.float32)
    weights *= np.linspace(1, 2, 64, dtype=np.float32)[:, None]
    fmt = BlockFormat(bits, LARGEST)
    codes, scales = quantize(weights, fmt)
    moved = dequantize(codes, np.roll(scales, 1, axis=0), 1024, fmt)
    assert WEIGHTS[bits].broken_by(difference(moved, weights))
