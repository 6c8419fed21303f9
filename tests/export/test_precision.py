from __future__ import annotations

import pytest

from q35export.precision import MANY_WEIGHTS, Quantisation, precision_plan
from q35export.request import PRECISIONS, Precision


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
