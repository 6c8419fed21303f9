"""The three graphs of the `ascend-310p` target, each complete in itself."""

from __future__ import annotations

from q35export.ascend.graphs.decode import build_decode_graph
from q35export.ascend.graphs.options import AscendOptions
from q35export.ascend.graphs.prefill import build_prefill_graph
from q35export.ascend.graphs.vision import build_padded_vision_graph

__all__ = ["BUILDERS", "AscendOptions"]

BUILDERS = {
    "vision": build_padded_vision_graph,
    "prefill": build_prefill_graph,
    "decode": build_decode_graph,
}
"""Each builds one graph, as its plan has the weights; they go to the sink on the way. They raise
ExportError for a model that the graphs cannot hold."""
