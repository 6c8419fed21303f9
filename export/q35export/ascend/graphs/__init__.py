"""The three graphs of the `ascend-310p` target: vision, prefill, decode.

Each is complete in itself; `build_ascend_graph` makes one by name.
"""

from __future__ import annotations

import onnx_ir as ir

from q35chat.errors import UsageError
from q35export.ascend.graphs.decode import build_decode_graph
from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.graphs.prefill import build_prefill_graph
from q35export.ascend.graphs.vision import build_padded_vision_graph
from q35export.config import ModelConfig
from q35export.matrix import TensorSource
from q35export.weights import WeightSink

COMPONENTS = ("vision", "prefill", "decode")

__all__ = [
    "COMPONENTS",
    "AscendOptions",
    "build_ascend_graph",
    "build_decode_graph",
    "build_padded_vision_graph",
    "build_prefill_graph",
]


def build_ascend_graph(
    component: str,
    config: ModelConfig,
    source: TensorSource,
    sink: WeightSink,
    options: AscendOptions,
) -> ir.Model:
    """Build one of `COMPONENTS`; its weights go to `sink` on the way.

    Raises UsageError for another name, ExportError for a model that the graphs cannot hold.
    """
    builders = {
        "vision": build_padded_vision_graph,
        "prefill": build_prefill_graph,
        "decode": build_decode_graph,
    }
    if component not in builders:
        raise UsageError(f"component must be one of {', '.join(COMPONENTS)}, found {component!r}")
    return builders[component](config, source, sink, options)
