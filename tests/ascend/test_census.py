from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from q35export.ascend.census import census
from q35export.pipeline import ExportRequest, export
from tests.ascend.conftest import Export
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

SCOPES = ("layer_", "block_")


def test_every_node_is_counted_once(exported: Export) -> None:
    for name, graph in exported("even").graphs.items():
        model = ir.load(graph.path)
        counted = census(model)
        assert sum(counted.total.values()) == len(model.graph)
        outside = [node for node in model.graph if not (node.name or "").startswith(SCOPES)]
        assert sum(counted.outside.values()) == len(outside), name


def test_a_decode_layer_holds_its_kernels_once(exported: Export) -> None:
    counted = census(ir.load(exported("even").graphs["decode"].path))
    linear, full = counted.layers["linear"], counted.layers["full"]
    assert (linear[0], full[0]) == (4, 2)
    assert linear[1]["RecurrentGatedDeltaRule"] == 1
    assert (full[1]["Scatter"], full[1]["IncreFlashAttention"]) == (2, 1)


def test_an_export_tells_the_nodes_of_every_layer_by_type(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=3)
    request = ExportRequest(model=str(checkpoint), out=tmp_path / "out", max_seq_len=64)
    recorder = Recorder()
    export(replace(request, target="ascend-310p"), recorder)
    told = "\n".join(recorder.notes)
    assert "decode: 3 linear layers of" in told
    assert "1 RecurrentGatedDeltaRule" in told
    assert "prefill: outside of layers" in told
