"""A bundle's graphs with the same weights, multiplied in FP32 instead of int8.

Rounding activations to int8 turns the last bit of one sum into a whole step of the next, so two
correct programs drift apart; without it, what is left between them is a mistake in the graph.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx_ir as ir

from q35chat.bundle import Bundle

_FP32_ACTIVATIONS = 1  # MatMulNBits' accuracy_level: multiply in FP32


@contextmanager
def exact_copy(bundle: Bundle) -> Iterator[Bundle]:
    """The bundle again, in a folder beside it that is gone afterwards; weights are not copied
    where the file system can link them."""
    with tempfile.TemporaryDirectory(prefix=".q35chat-verify-", dir=bundle.path.parent) as folder:
        for name, file in bundle.manifest.graphs.items():
            source, target = bundle.graph_path(name), Path(folder, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            for sibling in source.parent.iterdir():
                if sibling != source:
                    _link(sibling, target.parent / sibling.name)
            ir.save(_exact(source), target)
        yield Bundle(Path(folder), bundle.manifest)


def _exact(path: Path) -> ir.Model:
    model = ir.load(path)
    for node in model.graph:
        if node.op_type == "MatMulNBits":
            node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", _FP32_ACTIVATIONS)
    return model


def _link(source: Path, target: Path) -> None:
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
