"""`verify` itself: sound bundles hold every limit, damaged ones break the right one."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.pipeline import export
from q35export.request import PRECISIONS, ExportRequest, Precision
from q35export.verify import Report, verify
from q35export.verify.reference import Encoder
from q35export.verify.samples import SAMPLES
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint
from tests.support.exported import Exported, export_checkpoint, export_golden
from tests.support.golden import load
from tests.support.variants import TEXT_ONLY

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module", params=PRECISIONS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_golden("narrow_key", tmp_path_factory, request.param)


@pytest.mark.parametrize("precision", ["int4", "int8"])
@pytest.mark.parametrize("shape", ["plain", "even"])
def test_a_calibrated_bundle_computes_what_its_stored_weights_say(
    tmp_path: Path, shape: str, precision: Precision
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", shape, seed=load(shape).seed)
    bundle = export_checkpoint(checkpoint, tmp_path / "out", precision, calibrate=True)
    report = verify(bundle.path, checkpoint, tokens=8, threads=1)
    assert report.passed, report.table()
    graph = [row for row in report.tensors if row.comparison == "graph"]
    assert max(row.difference.nrmse for row in graph) < 1e-4
    assert all(row.equal == 8 for row in report.tokens if row.comparison == "graph")


@pytest.mark.parametrize(
    ("variant", "target"), [*((name, "cpu") for name in TEXT_ONLY), ("qwen3_5_text", "ascend-310p")]
)
def test_a_model_that_sees_no_pictures_is_compared_by_its_text(
    tmp_path: Path, variant: str, target: str
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "even", seed=2)
    TEXT_ONLY[variant](checkpoint)
    out = tmp_path / "out"
    export(ExportRequest(str(checkpoint), out, target=target, max_seq_len=128), Recorder())
    report = verify(out, checkpoint, tokens=8, threads=1)
    assert report.passed, report.table()
    assert {row.sample for row in report.tokens} == {"text"}
    graph = [row for row in report.tensors if row.comparison == "graph"]
    kinds = {row.tensor.partition("_")[0] for row in graph}
    assert kinds == {"logits", "conv", "recurrent", "key", "value"}


def run(bundle: Path, exported: Exported) -> Report:
    return verify(bundle, exported.checkpoint, tokens=8, threads=1)


def test_a_sound_bundle_holds_every_limit(exported: Exported) -> None:
    report = run(exported.bundle.path, exported)
    assert report.passed, report.table()
    graph = [row for row in report.tensors if row.comparison == "graph"]
    kinds = {row.tensor.partition("_")[0] for row in graph}
    assert kinds == {"picture", "logits", "conv", "recurrent", "key", "value"}
    assert max(row.difference.nrmse for row in graph) < 1e-4
    assert all(row.equal == 8 for row in report.tokens if row.comparison == "graph")


def test_a_damaged_weight_is_found(exported: Exported, tmp_path: Path) -> None:
    damaged = shutil.copytree(exported.bundle.path, tmp_path / "damaged")
    weights = np.memmap(Bundle.open(damaged).graph_path("text").parent / "model.bin", np.uint8)
    middle = len(weights) // 2
    weights[middle : middle + 4096] ^= 0x3C
    weights.flush()
    assert not run(damaged, exported).passed


def test_what_does_not_fit_the_capacity_is_left_out_of_a_comparison_that_holds(
    tmp_path: Path,
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=load("plain").seed)
    encoder, out = Encoder(checkpoint), tmp_path / "out"
    needs = {sample.name: len(encoder.encode(sample).ids) + 8 - 1 for sample in SAMPLES}
    slots = sorted(needs.values())[1]
    export_checkpoint(checkpoint, out, max_seq_len=slots)
    notes: list[str] = []
    report = verify(out, checkpoint, tokens=8, threads=1, note=notes.append)
    assert report.passed, report.table()
    fitting = {name for name, needed in needs.items() if needed <= slots}
    assert {row.sample for row in report.tokens} == fitting
    assert len(fitting) == len(needs) - 1
    assert sum(note.startswith("sample left out: ") for note in notes) == 1
