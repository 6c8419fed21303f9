"""Every exported graph is what ONNX says, not only what one runtime puts up with."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from q35export.ascend.reference import GraphExecutor
from q35export.config import load_config
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint
from tests.support.spec import SIZES, check_in_full, evaluated, some_feeds

TOLERANCE = 2e-3  # the NPU's kernels round to FP16 at their boundary
CPU = ExportRequest(target="cpu", max_seq_len=32)
NPU = ExportRequest(target="ascend-310p", max_seq_len=32, dtype="fp32", image_gears=(4, 16))
REQUESTS = {
    "cpu": replace(CPU, precision="fp32", mtp=True),
    "cpu-int8": replace(CPU, precision="int8", mtp=True),
    "npu": NPU,
    "npu-unfused": replace(NPU, fused_prefill=False, fused_decode=False),
    "npu-stateless": replace(NPU, stateless_prefill=True),
}


def graphs_of(folder: Path, request: ExportRequest) -> list[Path]:
    """The graphs of an export; quantised weights are multiplied without rounding what goes in, or
    the last bit of one product would be a whole step of the next."""
    checkpoint = make_checkpoint(folder / "checkpoint", "plain", seed=3, with_mtp=True)
    request = replace(request, model=str(checkpoint), out=folder / "out")
    export(request, PlainReporter(io.StringIO()))
    graphs = sorted(request.out.rglob("*.onnx"))
    for path in graphs:
        model = onnx.load(path, load_external_data=False)
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 1
        onnx.save(model, path)
    return graphs


def run(path: Path, feeds: Mapping[str, Any], target: str | None) -> dict[str, Any]:
    """The outputs as the target's own runtime, or what stands for it, computes them."""
    if target != "cpu":
        return GraphExecutor(path).run(feeds)
    session = ort.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


def assert_agreement(path: Path, feeds: Mapping[str, Any], target: str | None) -> None:
    ours, theirs = run(path, feeds, target), evaluated(path, feeds)
    assert ours.keys() == theirs.keys()
    for output, values in ours.items():
        assert theirs[output].dtype == values.dtype, output
        np.testing.assert_allclose(
            theirs[output].astype(np.float64),
            values.astype(np.float64),
            atol=TOLERANCE * max(1.0, float(np.abs(values).max())),
            rtol=TOLERANCE,
            err_msg=f"{path.parent.name}: {output}",
        )


@pytest.mark.parametrize("name", REQUESTS)
def test_the_checker_and_the_reference_evaluator_of_onnx_agree(tmp_path: Path, name: str) -> None:
    request = REQUESTS[name]
    graphs = graphs_of(tmp_path, request)
    config = load_config(tmp_path / "checkpoint")
    assert graphs
    for path in graphs:
        check_in_full(path)
        assert_agreement(path, some_feeds(path, config), request.target)


def test_one_token_that_reads_rows_of_the_caches_is_evaluated_alike(tmp_path: Path) -> None:
    graphs = graphs_of(tmp_path, replace(REQUESTS["cpu"], max_seq_len=128))
    path = next(one for one in graphs if one.parent.name == "text")
    config = load_config(tmp_path / "checkpoint")
    whole = some_feeds(path, config, sizes=SIZES | {"T": 1})
    caches = run(path, whole, "cpu")
    heads, width = range(config.text.num_kv_heads), config.text.head_dim
    feeds = whole | {
        f"filled_{part}_3_{head}": caches[f"present_{part}_3"][0, head].reshape(*shape, width)
        for part, shape in (("key", (128,)), ("value", (4, 1, 32)))
        for head in heads
    }
    rows = run(path, feeds, "cpu")

    assert_agreement(path, feeds, "cpu")
    np.testing.assert_allclose(rows["logits"], caches["logits"], atol=1e-5)
    for name in ("present_key_3", "present_value_3"):
        np.testing.assert_array_equal(rows[name][:, :, :6], caches[name][:, :, :6])
