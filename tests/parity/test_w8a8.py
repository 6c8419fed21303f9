"""310P graphs that multiply in int8, run by the executor, against transformers' own model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35export.pipeline import export
from q35export.request import ExportRequest
from q35export.verify import verify
from q35export.verify.metrics import difference
from q35export.verify.samples import SAMPLES
from tests.export.recorder import Recorder
from tests.parity.ascend_case import WAYS, Case
from tests.support.checkpoints import make_checkpoint
from tests.support.pairs import in_turn

pytestmark = pytest.mark.parity

SHAPES = ("plain", "even", "narrow_key", "mostly_linear", "true_heads", "demo")
STEPS = 12
Cases = Callable[[str], Case]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    made: dict[str, Case] = {}

    def case(shape: str) -> Case:
        if shape not in made:
            made[shape] = Case(tmp_path_factory.mktemp(shape), shape, w8a8=True)
        return made[shape]

    return case


def divergence(found: np.ndarray, wanted: np.ndarray) -> float:
    """Kullback-Leibler, in nats, of rows of logits `[V]`."""
    a, b = (
        rows - np.logaddexp.reduce(rows) for rows in (wanted.astype(float), found.astype(float))
    )
    return float((np.exp(a) * (a - b)).sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_states_and_steps_stay_near_pytorch_in_fp16(cases: Cases, shape: str) -> None:
    case = cases(shape)
    sample = in_turn(SAMPLES[:2], SHAPES.index(shape), 0)
    question = case.question(sample)
    wanted, states = case.wanted(question, STEPS).greedy, case.half.prefill(question.prompt).states
    chat, logits = case.read(question, in_turn((WAYS[1], WAYS[4]), SHAPES.index(shape), 0))
    for name, state in chat.by_layer().items():
        apart = difference(state, states[name])
        assert apart.cosine >= 0.98, f"{name}: {apart}"
        assert apart.nrmse <= 0.2, f"{name}: {apart}"
    lost, apart_by = [], []
    for number, (token, row) in enumerate(zip(wanted.tokens, wanted.logits, strict=True)):
        apart_by.append(difference(logits, row))
        lost.append(divergence(logits, row))
        if number + 1 < STEPS:
            logits = chat.step(int(token))
    assert min(apart.cosine for apart in apart_by) >= 0.9, apart_by
    assert np.mean([apart.nrmse for apart in apart_by]) <= 0.2, apart_by
    assert np.mean(lost) <= 0.1, lost


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and its bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    checkpoint = make_checkpoint(folder / "checkpoint", "narrow_key", seed=4)
    (folder / "text").write_text("What is told here was told before. " * 80, encoding="utf-8")
    request = ExportRequest(
        model=str(checkpoint),
        out=folder / "out",
        target="ascend-310p",
        precision="w8a8",
        calibration=folder / "text",
        max_seq_len=256,
        gears=(64,),
        image_gears=(64,),
    )
    export(request, Recorder())
    return checkpoint, folder / "out"


def test_a_sound_bundle_holds_every_limit(exported: tuple[Path, Path]) -> None:
    checkpoint, out = exported
    report = verify(out, checkpoint, tokens=2, threads=1)
    assert report.passed, report.table()
    kinds = {row.comparison for row in report.tensors}
    assert kinds == {"quantisation", "weights", "graph", "running"}
    assert report.precision == "w8a8"


def test_a_damaged_code_is_found(exported: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, out = exported
    damaged = Path(shutil.copytree(out, tmp_path / "damaged"))
    path = Bundle.open(damaged).graph_path("prefill").parent / "model.bin"
    codes = np.memmap(path, np.int8)
    codes[len(codes) // 2 :] = 0
    codes.flush()
    assert not verify(damaged, checkpoint, tokens=2, threads=1).passed
