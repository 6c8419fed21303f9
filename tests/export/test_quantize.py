"""Blocks of quantised weights: their format, what they do to weights, which a matrix gets."""

from __future__ import annotations

import numpy as np
import pytest

from q35export.precision import MANY_WEIGHTS, Quantisation, precision_plan
from q35export.quantize import BlockFormat, dequantize, quantize
from q35export.request import BLOCK_SIZES, PRECISIONS, Precision
from q35export.verify.metrics import WEIGHTS, Difference, difference
from tests.support.block_arithmetic import Floats

FORMATS = [BlockFormat(bits, block) for bits in (4, 8) for block in (32, 64, 128)]


def _weights(rows: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, k)).astype(np.float32)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("k", [32, 100, 192])
def test_every_value_is_within_half_a_step_or_clipped_at_the_peak(fmt: BlockFormat, k: int) -> None:
    weights = _weights(7, k)
    packed, scales = quantize(weights, fmt)
    error = np.abs(dequantize(packed, scales, k, fmt) - weights)
    steps = np.repeat(np.abs(scales), fmt.block, axis=1)[:, :k]
    clipped = np.abs(weights) > steps * (fmt.half - 1)
    assert (error[~clipped] <= steps[~clipped] * 0.5001).all()
    assert (error[clipped] <= np.abs(weights[clipped]) * 0.2).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_packed_shapes_are_those_of_matmulnbits(fmt: BlockFormat) -> None:
    packed, scales = quantize(_weights(5, 100), fmt)
    assert packed.shape == (5, fmt.blocks(100), fmt.block * fmt.bits // 8)
    assert packed.dtype == np.uint8
    assert scales.shape == (5, fmt.blocks(100))


def test_low_half_of_a_byte_holds_the_even_position() -> None:
    weights = np.zeros((1, 32), np.float32)
    weights[0, :3] = [-8.0, 1.0, 2.0]
    packed, scales = quantize(weights, BlockFormat(4, 32))
    assert scales[0, 0] == pytest.approx(1.0)
    assert packed[0, 0, 0] == (1 + 8) << 4 | 0
    assert packed[0, 0, 1] == 8 << 4 | (2 + 8)


def test_four_bit_scale_search_beats_the_plain_largest_value() -> None:
    weights = _weights(64, 128)
    fmt = BlockFormat(4, 32)
    packed, scales = quantize(weights, fmt)
    searched = np.square(dequantize(packed, scales, 128, fmt) - weights).mean()
    blocks = weights.reshape(64, 4, 32)
    step = np.abs(blocks).max(-1, keepdims=True) / 7
    plain = np.square(np.clip(np.rint(blocks / step), -8, 7) * step - blocks).mean()
    assert searched < plain * 0.97


# The table of formats in the exporter's README.
@pytest.mark.parametrize(
    ("fmt", "gaussian", "heavy"),
    [
        (BlockFormat(8, 32), 0.0053, 0.0067),
        (BlockFormat(8, 64), 0.0060, 0.0081),
        (BlockFormat(8, 128), 0.0065, 0.0095),
        (BlockFormat(4, 32), 0.0830, 0.1052),
        (BlockFormat(4, 64), 0.0910, 0.1233),
        (BlockFormat(4, 128), 0.0974, 0.1406),
    ],
    ids=str,
)
def test_a_projection_errs_by_what_the_table_says(
    fmt: BlockFormat, gaussian: float, heavy: float
) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 1024)).astype(np.float32)
    for weights, wanted in (
        (generator.normal(size=(512, 1024)), gaussian),
        (generator.standard_t(5, size=(512, 1024)), heavy),
    ):
        rows = weights.astype(np.float32)
        stored = dequantize(*quantize(rows, fmt), 1024, fmt)
        error = np.linalg.norm(x @ (stored - rows).T) / np.linalg.norm(x @ rows.T)
        assert error == pytest.approx(wanted, rel=0.04)


def test_rows_of_zeros_stay_zero() -> None:
    for fmt in FORMATS:
        packed, scales = quantize(np.zeros((2, 64), np.float32), fmt)
        assert np.isfinite(scales).all()
        assert not dequantize(packed, scales, 64, fmt).any()


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


@pytest.mark.parametrize(
    ("n", "k", "block"),
    [
        (8192, 1024, 128),
        (1024, 3584, 128),
        (MANY_WEIGHTS // 128, 128, 128),
        (MANY_WEIGHTS // 128 - 1, 128, 32),
        (2048, 1344, 64),
        (4096, 1056, 32),
        (8192, 1000, 32),
        (256, 256, 32),
    ],
)
def test_a_large_matrix_has_the_largest_block_that_divides_its_rows(
    n: int, k: int, block: int
) -> None:
    assert Quantisation(4).format_of(n, k).block == block


@pytest.mark.parametrize("block", [32, 64, 128])
def test_a_block_that_was_asked_for_is_taken_for_every_matrix(block: int) -> None:
    for n, k in ((8192, 1024), (64, 96)):
        assert Quantisation(8, block).format_of(n, k).block == block


@pytest.mark.parametrize("precision", PRECISIONS)
def test_pictures_are_read_in_float_or_in_eight_bits(precision: Precision) -> None:
    plan = precision_plan(precision, 64)
    assert plan.vision == (None if precision == "fp32" else Quantisation(8, 64))


def test_at_eight_bits_what_writes_to_the_stream_has_small_blocks() -> None:
    plan = precision_plan("int8")
    assert plan.writers is not None
    assert plan.decoder is not None
    assert plan.writers.format_of(1024, 3584) == BlockFormat(8, 32)
    assert plan.decoder.format_of(7168, 1024) == BlockFormat(8, 128)
    told = precision_plan("int8", 128)
    assert told.writers == told.decoder
