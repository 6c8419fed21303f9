"""`verify` of a bundle for the 310P: its graphs run here, without an NPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.pipeline import export
from q35export.request import ExportRequest
from q35export.verify import Report, verify
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "narrow_key", seed=4)


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "out"
    request = ExportRequest(
        model=str(checkpoint),
        out=out,
        target="ascend-310p",
        max_seq_len=256,
        gears=(32, 64),
        image_gears=(16, 64),
    )
    export(request, Recorder())
    return out


def run(bundle: Path, checkpoint: Path) -> Report:
    return verify(bundle, checkpoint, tokens=8, threads=1)


def test_a_sound_bundle_holds_every_limit(bundle: Path, checkpoint: Path) -> None:
    report = run(bundle, checkpoint)
    assert report.passed, report.table()
    kinds = {row.tensor.partition("_")[0] for row in report.tensors}
    assert kinds == {"picture", "logits", "conv", "recurrent", "key", "value"}
    assert all(row.equal >= 6 for row in report.tokens)


def test_a_damaged_weight_is_found(bundle: Path, checkpoint: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(bundle, tmp_path / "damaged"))
    path = Bundle.open(damaged).graph_path("prefill").parent / "model.bin"
    weights = np.memmap(path, np.float16)
    weights[len(weights) // 2 :] = 0
    weights.flush()
    assert not run(damaged, checkpoint).passed
