"""A bundle's graphs with the same weights, multiplied in FP32 instead of int8.

Rounding activations to int8 turns the last bit of one sum into a whole step of the next, so two
correct programs drift apart; without it, what is left between them is a mistake in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import onnx_ir as ir

from q35chat.bundle.bundle import Bundle
from q35chat.errors import BundleError

_FP32_ACTIVATIONS = 1  # MatMulNBits' accuracy_level: multiply in FP32
_GRAPHS = ("text", "vision")
_NAME = ".verify.onnx"


@contextmanager
def exact_copy(bundle: Bundle) -> Iterator[Bundle]:
    """The bundle with such graphs, written beside its own over the same weights; they are gone
    afterwards. Raises BundleError where they cannot be written."""
    graphs = {
        name: str(PurePosixPath(file).with_name(_NAME))
        for name, file in bundle.manifest.graphs.items()
        if name in _GRAPHS
    }
    exact = Bundle(bundle.path, replace(bundle.manifest, graphs=graphs))
    try:
        for name in graphs:
            _write_exact(bundle.graph_path(name), exact.graph_path(name))
        yield exact
    finally:
        for name in graphs:
            exact.graph_path(name).unlink(missing_ok=True)


def _write_exact(source: Path, target: Path) -> None:
    model = ir.load(source)
    for node in model.graph:
        if node.op_type == "MatMulNBits":
            node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", _FP32_ACTIVATIONS)
    try:
        ir.save(model, target)
    except OSError as error:
        raise BundleError(
            f"cannot write {target} for the comparison: {error.strerror or error}"
        ) from error
