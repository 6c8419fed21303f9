from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.ascend.options import NpuOptions
from q35chat.ascend.runtime import NpuRuntime
from q35chat.bundle.bundle import Bundle
from q35chat.errors import RuntimeFailure
from q35chat.runtimes import runtime
from tests.export.bundles import sample_manifest


def test_a_target_that_nothing_here_runs_is_refused(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, replace(sample_manifest(), target="abacus"))

    with pytest.raises(RuntimeFailure, match="no runtime for target 'abacus'"):
        runtime(bundle, threads=1)


def test_a_graph_that_is_not_converted_is_refused_by_the_npu(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path, replace(sample_manifest(), target="ascend-310p", graphs={}))
    npu = NpuRuntime(bundle, NpuOptions(residency="both"))

    with pytest.raises(RuntimeFailure, match=r"model\.onnx is not converted for the NPU: run"):
        npu.open_graph(tmp_path / "decode" / "model.onnx")
