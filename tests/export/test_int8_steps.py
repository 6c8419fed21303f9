"""Steps of inputs for multiplications in int8, which matrices stay floats, and an export so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.errors import UsageError
from q35export.calibration.calibrate import Window
from q35export.calibration.int8_steps import (
    LM_HEAD,
    floats,
    int8_matrices,
    measure,
    planned_steps,
    step_of,
)
from q35export.calibration.layers import FLOAT, Projection, TappingTarget, opened
from q35export.calibration.rotation import TurnedWeights
from q35export.checkpoint import Checkpoint
from q35export.components import builders_for
from q35export.config import load_config
from q35export.graph import Graph
from q35export.int8_rows import rounded_inputs, rounded_rows
from q35export.inventory import Inventory
from q35export.matrix import Float32, Matrix
from q35export.pipeline import export
from q35export.precision import PrecisionPlan, precision_plan
from q35export.quantize import BlockFormat
from q35export.request import ExportRequest
from q35export.targets.cpu import OPSET
from q35export.weights import MemorySink
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

PLAN = replace(precision_plan("w8a8"), turned=True)


def matrix_of(rows: Float32) -> Matrix:
    return Matrix(len(rows), rows.shape[1], lambda start, stop: rows[start:stop])


def projection(name: str, n: int, k: int) -> Projection:
    return Projection(name, matrix_of(np.zeros((n, k), np.float32)), BlockFormat(8, 32))


def windows_of(count: int) -> list[Window]:
    ids = np.random.default_rng(1).integers(40, 60, (count, 48))
    return [Window(row, np.tile(np.arange(48), (3, 1))) for row in ids]


def test_a_value_that_stands_out_is_cut_off_where_that_costs_less() -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((30, 256)).astype(np.float32)
    inputs = random.standard_normal((1000, 256)).astype(np.float32)
    inputs[3, 5] = 60
    peak = 60 / 127
    step = step_of(matrix_of(weights), [inputs])

    def error(tried: float) -> float:
        return float(np.square((rounded_inputs(inputs, tried) - inputs) @ weights.T).sum())

    assert step < 0.7 * peak
    assert error(step) < 0.7 * error(peak)


def test_inputs_that_a_column_of_zeros_meets_do_not_count() -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((30, 64)).astype(np.float32)
    weights[:, 7] = 0
    inputs = random.standard_normal((500, 64)).astype(np.float32)
    inputs[:, 7] *= 40
    assert step_of(matrix_of(weights), [inputs]) * 127 < 0.3 * np.abs(inputs).max()


def test_inputs_that_are_all_zero_have_a_step_that_the_kernel_takes() -> None:
    step = step_of(matrix_of(np.ones((2, 8), np.float32)), [np.zeros((4, 8), np.float32)])
    assert 1 / step <= np.finfo(np.float16).max


def test_a_layer_is_measured_as_it_will_be_multiplied() -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((30, 64)).astype(np.float32)
    inputs = 4 * random.standard_normal((1, 9, 64)).astype(np.float32)
    step = 1 / 16
    graph = Graph("layer", OPSET, sink := MemorySink("layer.bin"))
    target = TappingTarget(graph, PLAN, {}, {"down": step})
    x = graph.input("x", FLOAT, (1, "T", 64))
    product = target.project(x, "down", matrix_of(weights), PLAN.decoder)
    graph.output(product, "y", FLOAT, (1, "T", 30))

    (found,) = opened(graph.model({}), sink).run(None, {"x": inputs})
    wanted = rounded_inputs(inputs, step) @ rounded_rows(weights, step).T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert target.inputs["down"] is x


def test_the_most_expensive_matrices_for_their_size_stay_floats() -> None:
    matrices = [projection(name, n, 64) for name, n in (("a", 16), ("b", 16), ("c", 400))]
    matrices += [projection("d", 16, 64)]
    costs = {"a": 0.01, "b": 0.2, "c": 0.3, "d": 0.05}

    assert floats(matrices, costs) == {"b", "d", "a"}
    assert floats(matrices, costs | {"b": 9.0}) == {"b"}
    assert floats(matrices, dict.fromkeys(costs, 0.0001)) == set()


def test_at_least_seven_eighths_of_the_weights_are_planned_in_int8(tmp_path: Path) -> None:
    config = load_config(make_checkpoint(tmp_path / "checkpoint", "plain")).text
    planned = planned_steps(config, PLAN)
    sizes = {one.name: one.weights.n * one.weights.k
             for one in int8_matrices(config, Inventory(), PLAN)}  # fmt: skip

    in_int8 = sum(sizes[name] for name in planned)
    assert 0.875 <= in_int8 / sum(sizes.values()) < 1


def test_a_turned_stream_takes_what_stands_out_away(tmp_path: Path) -> None:
    """A channel of the stream that is far larger than all others, as trained models have them."""
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=3)
    config = load_config(checkpoint).text
    source = LoudChannel(Checkpoint.open(checkpoint))

    def costs(plan: PrecisionPlan, name: str) -> float:
        (work := tmp_path / name).mkdir()
        weights = TurnedWeights(source, config) if plan.turned else source
        found = measure(config, weights, plan, windows_of(4), work, Recorder()).costs
        return sum(cost for matrix, cost in found.items() if "gate_up" in matrix)

    assert costs(PLAN, "turned") < 0.5 * costs(replace(PLAN, turned=False), "plain")


class LoudChannel:
    """A checkpoint whose norms in front of the feed-forward blocks have one large weight."""

    def __init__(self, source: Checkpoint) -> None:
        self._source = source
        self.expect, self.rows = source.expect, source.rows

    def read(self, name: str) -> Float32:
        found = self._source.read(name)
        if name.endswith("post_attention_layernorm.weight"):
            found = found.copy()
            found[3] += 60
        return found


def test_costs_are_measured_once(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=3)
    config, source = load_config(checkpoint).text, Checkpoint.open(checkpoint)
    (work := tmp_path / "work").mkdir()
    given = config, TurnedWeights(source, config), PLAN, windows_of(4), work
    found = measure(*given, Recorder())

    assert found.steps.keys() == found.costs.keys()
    assert LM_HEAD in found.steps
    assert all(cost >= 0 for cost in found.costs.values())
    again = Recorder()
    assert measure(*given, again) == found
    assert not again.events


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"target": "cpu"}, "--precision w8a8 is for --target ascend-310p, found cpu"),
    ({"calibrate": False}, "w8a8 takes the scales of its inputs from a calibration; drop --no-"),
    ({"bits": 5.0}, "--bits 5 is for int4, found w8a8"),
    ({"block_size": 64}, "--block-size is for --target cpu, found ascend-310p"),
    ({"stream": True}, "--stream is for --target cpu"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        builders_for(ExportRequest(**{"target": "ascend-310p", "precision": "w8a8"} | options))


def test_a_text_to_calibrate_with_is_for_int8_only_on_an_npu() -> None:
    with pytest.raises(UsageError, match="--calibration is for --target cpu, found ascend-310p"):
        builders_for(ExportRequest(target="ascend-310p", calibration=Path("text")))


def test_an_export_keeps_what_it_measured_and_is_not_made_twice(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    text = tmp_path / "text"
    text.write_text("Nothing rhymes with orange, and much does with two. " * 60, encoding="utf-8")
    request = ExportRequest(
        str(checkpoint), tmp_path / "out", target="ascend-310p", precision="w8a8", max_seq_len=64,
        image_gears=(4,), calibration=text,
    )  # fmt: skip
    planned = export(replace(request, dry_run=True), Recorder()).plan
    recorder = Recorder()
    done = export(request, recorder)
    manifest = Bundle.open(done.out).manifest

    assert manifest.precision == "w8a8"
    for part in ("prefill", "decode"):
        told = manifest.options[part]
        assert {"kld", "top_1", "perplexity_ratio", "calibration"} <= told.keys()
        assert (told["precision"], told["dtype"]) == ("w8a8", "fp16")
    floats_told = manifest.options["decode"].get("floats", "nothing")
    assert f"not in int8, which would cost too much: {floats_told}" in recorder.notes
    assert planned
    assert done.plan
    assert done.plan.total <= 1.03 * planned.total
    assert export(request, Recorder()).status == "up-to-date"
    (done.out / "decode" / "model.bin").write_bytes(b"")
    repaired = Recorder()
    assert export(request, repaired).status == "exported"
    again = Bundle.open(done.out).manifest
    assert json.dumps(dict(again.files), default=str) == json.dumps(
        dict(manifest.files), default=str
    )
