"""Matrices with blocks of 32, 64 and 128 in one graph, as large checkpoints have them by default.

Small shapes have them where few weights already count as many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from q35chat.bundle.bundle import Bundle
from q35export import precision as precisions
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.quantize import BlockFormat, dequantize, quantize
from q35export.request import BLOCK_SIZES, Precision
from q35export.verify.candidate import Candidate, exact_copy
from q35export.verify.reference import Encoder
from q35export.verify.samples import Drawing, Sample
from q35export.verify.stored_weights import StoredTensor, stored_weights
from tests.support.checkpoints import ShapeSpec, make_checkpoint
from tests.support.exported import export_checkpoint
from tests.support.rewriting import rewrite_checkpoint

# Widths of rows: 192, 288, 128 and 256 in the decoder, 1536, 96, 192 and 384 in the tower. The
# other way round most matrices would have other blocks.
SHAPE = ShapeSpec(
    hidden=192, intermediate=288, layers="LF",
    vision_depth=1, vision_hidden=96, vision_intermediate=192, vision_heads=4,
)  # fmt: skip
MANY, FEW = 10_000, 9216  # the tower's output projection, `[96, 96]`, is the only small matrix
PRECISIONS: tuple[Precision, ...] = ("int8", "int4")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), SHAPE, seed=6)


@pytest.fixture(scope="module", params=PRECISIONS)
def bundle(
    checkpoint: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precisions, "MANY_WEIGHTS", MANY)
        return export_checkpoint(checkpoint, tmp_path_factory.mktemp("out") / "out", request.param)


def block_of(n: int, k: int) -> int:
    """The block of a matrix `[n, k]`: the largest that divides a row, if it is no small matrix."""
    return next(b for b in (128, 64, 32) if k % b == 0) if n * k > FEW else 32


def writes(name: str, bits: int) -> bool:
    """Whether a tensor is one of those that have small blocks at 8 bits."""
    kinds = ("out_proj", "o_proj", "down_proj")
    return bits == 8 and "language_model" in name and any(kind in name for kind in kinds)


def stored(bundle: Bundle, checkpoint: Path) -> dict[str, StoredTensor]:
    return dict(stored_weights(bundle, load_config(checkpoint)))


@pytest.mark.parametrize("graph", ["text", "vision"])
def test_every_matrix_has_the_block_of_its_rows(graph: str, bundle: Bundle) -> None:
    seen = set()
    written = {SHAPE.hidden} if graph == "text" and bundle.manifest.precision == "int8" else set()
    for node in ir.load(bundle.graph_path(graph)).graph:
        if node.op_type == "MatMulNBits":
            n, k, block = (node.attributes[x].as_int() for x in ("N", "K", "block_size"))
            wanted = 32 if n in written else block_of(n, k)
            assert block == wanted, f"{node.name} [{n}, {k}]"
            seen.add(block)
    assert seen == set(BLOCK_SIZES) - ({128} if written else set())  # no other row has 128


def test_the_stored_weights_are_the_checkpoints_rounded_in_these_blocks(
    bundle: Bundle, checkpoint: Path
) -> None:
    weights = Checkpoint.open(checkpoint)
    found = stored(bundle, checkpoint)
    for name, tensor in found.items():
        wanted = weights.read(name)
        flat = wanted.reshape(len(wanted), -1)
        block = 32 if writes(name, tensor.bits) else block_of(*flat.shape)
        fmt = BlockFormat(tensor.bits, block)
        rounded = dequantize(*quantize(flat, fmt), flat.shape[1], fmt)
        if "embed_tokens" in name and tensor.bits == 4:
            fine = dequantize(*quantize(flat - rounded, fmt), flat.shape[1], fmt)
            rounded = rounded + fine
        np.testing.assert_array_equal(tensor.values, rounded.reshape(wanted.shape), err_msg=name)
    widths = {tensor.values.reshape(len(tensor.values), -1).shape[1] for tensor in found.values()}
    assert widths == {192, 288, 128, 256, 1536, 96, 384}


def test_the_graphs_multiply_by_these_weights(
    bundle: Bundle, checkpoint: Path, tmp_path: Path
) -> None:
    weights = {name: tensor.values for name, tensor in stored(bundle, checkpoint).items()}
    rounded = rewrite_checkpoint(checkpoint, tmp_path / "rounded", weights)
    wanted = Candidate(export_checkpoint(rounded, tmp_path / "out"), threads=1)
    sample = Sample("picture", "What is in the picture?", (Drawing(200, 130, 1),))
    prompt, tokens = Encoder(checkpoint).encode(sample), np.arange(20, 28)
    with exact_copy(bundle) as copy:
        found = Candidate(copy, threads=1)
        picture = prompt.pictures[0]
        np.testing.assert_allclose(found.vision(picture), wanted.vision(picture), atol=1e-3)
        np.testing.assert_allclose(
            found.follow(prompt, tokens), wanted.follow(prompt, tokens), atol=1e-3
        )
        found.close()
    wanted.close()
