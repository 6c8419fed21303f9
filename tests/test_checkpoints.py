"""The random checkpoints: every branch of the graphs is covered, the full ones are as published."""

from __future__ import annotations

import numpy as np

from tests.support.checkpoints import SHAPES
from tests.support.shapes import FULL_SHAPES
from tests.support.weights import tensors


def test_the_shapes_cover_every_branch_of_the_graphs() -> None:
    shapes = SHAPES.values()
    assert {shape.nv // shape.nk for shape in shapes} >= {1, 2, 4}
    assert {shape.head_dim for shape in shapes} >= {32, 64, 256}
    assert {shape.tied for shape in shapes} == {True, False}
    assert any(shape.heads == shape.kv_heads for shape in shapes)
    assert any(shape.heads > shape.kv_heads > 1 for shape in shapes)
    assert any(shape.dk != shape.dv for shape in shapes)
    assert any(shape.vocab % 32 for shape in shapes)
    assert any(shape.hidden % 128 for shape in shapes)
    assert any(shape.intermediate % 32 for shape in shapes)
    assert {shape.kernel for shape in shapes} >= {2, 3, 4}
    assert {shape.layers[0] for shape in shapes} == {"L", "F"}
    assert {shape.layers[-1] for shape in shapes} == {"L", "F"}
    assert len({shape.layers.count("L") / shape.layers.count("F") for shape in shapes}) >= 4
    assert len({shape.grid_side for shape in shapes}) >= 4


def test_full_shapes_have_the_published_number_of_parameters() -> None:
    sizes = {
        name: sum(int(np.prod(t.shape)) for t in tensors(shape, with_mtp=False))
        for name, shape in FULL_SHAPES.items()
    }
    assert 0.80e9 < sizes["0.8b"] < 0.90e9
    assert 4.2e9 < sizes["4b"] < 4.7e9
