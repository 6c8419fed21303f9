"""The parts of a bundle that are built from weights, each a graph in a folder of its own.

The only module that knows which graph builder makes which component.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from q35chat.errors import ExportError
from q35export.config import ModelConfig
from q35export.matrix import TensorSource
from q35export.request import ExportRequest
from q35export.weights import WeightSink

GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "model.bin"

Builder = Callable[[ExportRequest, ModelConfig, TensorSource, WeightSink], ir.Model]
Builders = Mapping[str, Builder]


def builders_for(target: str) -> Builders:
    """The graph builders of a target by component; ExportError for one not available."""
    if target != "cpu":
        raise ExportError(
            f"--target {target} is not available in this version of q35chat; use --target cpu"
        )
    return {"vision": _vision, "text": _text}


def component_options(request: ExportRequest, component: str) -> dict[str, str | int]:
    """What of the request shapes this component; equal options give an equal component."""
    if component == "vision":
        return {"precision": request.precision}
    return {"precision": request.precision, "max_seq_len": request.max_seq_len}


def _text(
    request: ExportRequest, config: ModelConfig, source: TensorSource, sink: WeightSink
) -> ir.Model:
    from q35export.graphs.text import build_text_graph  # noqa: PLC0415

    return build_text_graph(
        config, source, sink, capacity=request.max_seq_len, precision=request.precision
    )


def _vision(
    request: ExportRequest, config: ModelConfig, source: TensorSource, sink: WeightSink
) -> ir.Model:
    from q35export.graphs.vision import build_vision_graph  # noqa: PLC0415

    return build_vision_graph(config, source, sink, precision=request.precision)
