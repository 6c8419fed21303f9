"""Rounding with feedback: what it promises of one matrix and of a whole decoder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from q35chat.bundle.bundle import Bundle, is_bundle
from q35chat.errors import UsageError
from q35export.calibration import feedback
from q35export.calibration.allocation import allocate, described
from q35export.calibration.calibrate import Texts, Window, calibrate
from q35export.calibration.feedback import damping_of, feedback_of, round_rows
from q35export.calibration.kept import compare
from q35export.calibration.layers import Projection
from q35export.calibration.pictures import SCENES, picture_windows
from q35export.calibration.sensitivity import budgeted, sensitivity
from q35export.calibration.text import BUILT_IN, read_windows, text_digest
from q35export.checkpoint import Checkpoint
from q35export.config import ModelConfig, load_config
from q35export.graphs.text import build_text_graph
from q35export.matrix import Float32, Matrix, TensorSource
from q35export.pipeline import export
from q35export.precision import FLOAT_PLAN, LOGIT_GROUP, PrecisionPlan, Quantisation, precision_plan
from q35export.quantize import BlockFormat, dequantize, quantize
from q35export.request import ExportRequest
from q35export.verify.stored_weights import quantised_matrices
from q35export.weights import FileSink
from tests.benchmarks.quality.divergence import divergence
from tests.export.recorder import Recorder
from tests.export.test_text_graph import CAPACITY, Decoder
from tests.support.checkpoints import SHAPES, make_checkpoint

FMT = BlockFormat(4, 32)


def _texts(count: int) -> Texts:
    return Texts(_windows(count), _windows(1))


def _windows(count: int, length: int = CAPACITY) -> list[Window]:
    """Few different tokens, so that inputs have directions that matter more than others."""
    ids = np.random.default_rng(1).integers(40, 60, (count, length))
    return [Window(row, np.tile(np.arange(length), (3, 1))) for row in ids]


@pytest.mark.parametrize(("n", "k"), [(5, 64), (40, 160), (33, 100)])
def test_errors_of_columns_cancel_on_the_inputs(n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(4 * k, k // 4)) @ rng.normal(size=(k // 4, k))
    inputs = (mixed + 0.1 * rng.normal(size=mixed.shape)).astype(np.float32)
    weights = rng.normal(size=(n, k)).astype(np.float32)
    inner = feedback_of(inputs.T @ inputs, 0.01)

    def error(rounded: tuple[np.ndarray, np.ndarray]) -> float:
        return float(np.linalg.norm(inputs @ (dequantize(*rounded, k, FMT) - weights).T))

    whole = round_rows(weights, inner, FMT)
    assert error(whole) < 0.6 * error(quantize(weights, FMT))
    halves = [round_rows(part, inner, FMT) for part in (weights[:3], weights[3:])]
    assert np.array_equal(whole[0], np.concatenate([codes for codes, _ in halves]))


def test_inputs_that_never_came_leave_the_weights_rounded() -> None:
    weights = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    rounded = round_rows(weights, feedback_of(np.zeros((64, 64), np.float32), 0.01), FMT)
    assert np.abs(dequantize(*rounded, 64, FMT) - weights).max() < 0.5


def test_each_code_is_gone_through_once_more_beside_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    inputs = (rng.normal(size=(400, 20)) @ rng.normal(size=(20, 100))).astype(np.float32)
    weights = rng.normal(size=(30, 100)).astype(np.float32)
    moments = inputs.T @ inputs
    settled = round_rows(weights, feedback_of(moments, 0.1), FMT)
    monkeypatch.setattr(feedback, "_settle", lambda *_: None)
    greedy = round_rows(weights, feedback_of(moments, 0.1), FMT)

    def error(rounded: tuple[np.ndarray, np.ndarray]) -> float:
        lost = dequantize(*rounded, 100, FMT) - weights
        return float(np.vdot(lost @ moments, lost) + 0.1 * moments.trace() / 100 * np.sum(lost**2))

    assert error(settled) < 0.97 * error(greedy)


def test_a_text_no_longer_than_a_matrix_is_wide_is_not_taken_at_its_word() -> None:
    rng = np.random.default_rng(0)
    gates = (rng.random((2, 128, 128)) < 0.1).astype(np.float32)  # most are shut, as in an MLP
    read, others = gates * rng.normal(size=gates.shape)
    weights = rng.normal(size=(40, 128)).astype(np.float32)
    moments = (read.T @ read).astype(np.float32)

    def error(damping: float) -> float:
        rounded = round_rows(weights, feedback_of(moments, damping), FMT)
        return float(np.linalg.norm(others @ (dequantize(*rounded, 128, FMT) - weights).T))

    assert damping_of(10 * 128, 128) < damping_of(2 * 128, 128) < damping_of(128, 128) == 1
    assert error(damping_of(128, 128)) < 0.9 * error(0.01)


def _graph(folder: Path, config: ModelConfig, source: Checkpoint, plan: PrecisionPlan) -> Decoder:
    folder.mkdir()
    with FileSink(folder / "model.bin", lambda _: None) as sink:
        model = build_text_graph(config, source, sink, capacity=CAPACITY, plan=plan)
    ir.save(model, folder / "model.onnx")
    return Decoder(folder)


def _divergence(wanted: np.ndarray, found: np.ndarray) -> float:
    return divergence(wanted, found, np.zeros(len(wanted), np.int64)).mean


@pytest.mark.parametrize("shape", ["plain", "even", "full_first"])
def test_a_calibrated_decoder_keeps_more_than_one_rounded_to_nearest(
    tmp_path: Path, shape: str
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", shape, seed=5)
    config, source = load_config(checkpoint), Checkpoint.open(checkpoint)
    eight = Quantisation(8, 32)
    plain = replace(precision_plan("int4", 32), head=eight)  # its error would hide the others'
    (work := tmp_path / "work").mkdir()
    turned = replace(plain, turned=True)
    calibrated, measured = calibrate(config.text, source, turned, _texts(60), work, Recorder())
    nothing = np.zeros((0, config.text.hidden_size))
    rows = {}
    for name, plan in (("fp32", FLOAT_PLAN), ("plain", plain), ("calibrated", calibrated)):
        decoder = _graph(tmp_path / name, config, source, plan)
        rows[name] = decoder.rows(
            np.random.default_rng(9).integers(40, 60, 24).tolist(), nothing, 24
        )
    kept = _divergence(rows["fp32"], rows["calibrated"])
    assert measured.divergence == pytest.approx(kept, rel=0.5)
    assert kept < 0.6 * _divergence(rows["fp32"], rows["plain"])


def test_experts_that_are_calibrated_keep_more_than_those_rounded_to_nearest(
    tmp_path: Path,
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "experts", seed=5)
    config, source = load_config(checkpoint), Checkpoint.open(checkpoint)
    (work := tmp_path / "work").mkdir()
    plain = replace(precision_plan("int4", 32), head=Quantisation(8, 32))
    texts = Texts(_windows(60), _windows(8))
    turned = replace(plain, turned=True)
    calibrated, measured = calibrate(config.text, source, turned, texts, work, Recorder())
    found = {}
    for name, plan in (("fp32", FLOAT_PLAN), ("plain", plain), ("calibrated", calibrated)):
        decoder = _graph(tmp_path / name, config, source, plan)
        rows = []
        for window in texts.held_out:
            decoder.forget()
            rows.append(decoder.rows(window.ids.tolist(), np.zeros((0, 128)), CAPACITY))
        found[name] = np.concatenate(rows)
    kept = _divergence(found["fp32"], found["calibrated"])
    assert measured.divergence == pytest.approx(kept, rel=0.3)
    assert kept < 0.8 * _divergence(found["fp32"], found["plain"])


def test_a_calibration_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    config, source = load_config(checkpoint), Checkpoint.open(checkpoint)

    def run(work: Path, recorder: Recorder) -> dict[str, bytes]:
        work.mkdir(exist_ok=True)
        plan = replace(precision_plan("int4", 32), turned=True)
        calibrate(config.text, source, plan, _texts(4), work, recorder)
        return {path.name: path.read_bytes() for path in sorted(work.glob("rounded.*"))}

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", Stopping(2))
    resumed, whole = Recorder(), Recorder()
    assert run(tmp_path / "stopped", resumed) == run(tmp_path / "whole", whole)
    advances = [recorder.events.count("advance rounding") for recorder in (resumed, whole)]
    assert advances == [3, 5]
    assert resumed.written == resumed.totals


class Stopping(Recorder):
    """Ctrl+C once so many layers are rounded."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self._layers = layers

    def advance(self, component: str, count: int) -> None:
        super().advance(component, count)
        if self.events.count("advance rounding") == self._layers:
            raise KeyboardInterrupt


def test_every_quantised_matrix_of_every_shape_is_decided_on(tmp_path: Path) -> None:
    for shape in SHAPES:
        checkpoint = make_checkpoint(tmp_path / shape, shape, seed=5)
        config, source = load_config(checkpoint), Checkpoint.open(checkpoint)
        (work := tmp_path / f"{shape} work").mkdir()
        plan = replace(precision_plan("int4", 32), turned=True)
        plan, _ = calibrate(config.text, source, plan, _texts(1), work, Recorder())
        layers = {name.split("/")[0] for name in plan.matrices}
        expected = {f"layer_{index}" for index in range(len(config.text.layer_types))}
        fine = {"embed_tokens.fine"} if config.text.vocab_size % LOGIT_GROUP == 0 else set()
        ends = {"embed_tokens"} | (set() if config.text.tied else {"head"})
        assert layers == expected | ends | fine
        count = (1 if config.text.tied else 2) * (2 if fine else 1)
        assert len(plan.matrices) == 4 * len(expected) + count


def test_an_export_that_is_stopped_while_it_calibrates_goes_on_there(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    text = tmp_path / "text"
    text.write_text("The user and the assistant. 图片。\n" * 9, encoding="utf-8")
    request = ExportRequest(
        str(checkpoint),
        tmp_path / "out",
        target="cpu",
        max_seq_len=64,
        calibration=text,
    )
    with pytest.raises(KeyboardInterrupt):
        export(request, Stopping(2))
    assert not is_bundle(request.out)
    export(request, recorder := Recorder())
    assert recorder.events.count("advance rounding") == 3
    assert not list(tmp_path.glob(".out.*"))
    options = Bundle.open(request.out).manifest.options["text"]
    assert (options["rounding"], options["calibration"]) == ("calibrated", text_digest(text))
    assert {"kld", "top_1", "perplexity_ratio"} <= options.keys()
    again = export(replace(request, out=tmp_path / "again"), Recorder())
    files = [bundle.manifest.files for bundle in map(Bundle.open, (request.out, again.out))]
    assert files[0] == files[1]
    assert export(request, Recorder()).status == "up-to-date"


def test_a_preset_spends_its_bits_where_this_checkpoint_needs_them(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    request = ExportRequest(
        str(checkpoint), tmp_path / "out", target="cpu", max_seq_len=64, bits=6.5
    )
    planned = export(replace(request, dry_run=True), Recorder()).plan
    written = export(request, recorder := Recorder()).plan
    assert planned is not None
    assert written is not None
    assert written.total == pytest.approx(planned.total, rel=0.02)
    bundle = Bundle.open(request.out, check="full")
    options = bundle.manifest.options["text"]
    assert options["bits"] == "6.5"
    assert str(options["formats"]).startswith("8 bits in blocks of 32: ")
    assert any(str(options["formats"]) in note for note in recorder.notes)
    stored = dict(quantised_matrices(bundle.graph_path("text")))
    assert stored.pop("embed_tokens").bits == 4
    assert {matrix.bits for matrix in stored.values()} == {4, 8}
    weights = sum(matrix.codes.size * 8 // matrix.bits for matrix in stored.values())
    size = sum(m.codes.nbytes + m.scales.nbytes for m in stored.values())
    assert 5.5 < size * 8 / weights <= 6.5
    assert bundle.manifest.kept


def test_pictures_are_read_where_their_tokens_are(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    config, source = load_config(checkpoint), Checkpoint.open(checkpoint)
    plan = replace(precision_plan("int4", 32), turned=True)
    windows = picture_windows(config, source, plan, checkpoint)
    assert len(windows) == len(SCENES)
    for window in windows:
        assert window.places is not None
        assert len(window.places) == len(_pictures(window)) > 16
        assert set(window.ids[window.places]) == {config.image_token_id}
        assert np.ptp(window.positions[:, window.places], axis=1).min() == 0
    first, second = (_pictures(window)[:9] for window in windows[:2])
    assert not np.allclose(first, second)
    seen: list[bytes] = []
    for some in (windows, [replace(one, pictures=-_pictures(one)) for one in windows]):
        folder = tmp_path / f"work {len(seen)}"
        folder.mkdir()
        texts = Texts(some, _windows(1))
        decided, _ = calibrate(config.text, source, plan, texts, folder, Recorder())
        read = decided.matrices["layer_0/down"].read
        assert read is not None
        seen.append(read()[0].tobytes())
    assert seen[0] != seen[1]


def _pictures(window: Window) -> np.ndarray:
    assert window.pictures is not None
    return window.pictures


def _matrix(name: str, n: int, k: int, block: int = 128) -> Projection:
    nothing = np.zeros((n, k), np.float32)
    return Projection(name, Matrix(n, k, lambda a, b: nothing[a:b]), BlockFormat(4, block))


def test_bits_go_where_they_take_most_of_the_divergence_away() -> None:
    matrices = [_matrix("layer_0/down", 256, 1024), _matrix("layer_1/down", 256, 1024),
                _matrix("embed_tokens", 1024, 1024)]  # fmt: skip
    costs = {"layer_0/down": 0.001, "layer_1/down": 0.1, "embed_tokens": 0.01}
    assert allocate(matrices, costs, 4.25) == {}
    few = allocate(matrices, costs, 5.1)
    assert few == {"layer_1/down": BlockFormat(8, 128)}
    some = {**few, "embed_tokens": BlockFormat(4, 64)}
    assert described(some) == (
        "8 bits in blocks of 128: down of layers 1; 4 bits in blocks of 64: embed_tokens"
    )
    assert set(allocate(matrices, costs, 8.25).values()) == {BlockFormat(8, 128)}
    assert allocate([_matrix("a", 8, 32, 32)], {}, 8.25 + 0.75) == {"a": BlockFormat(8, 32)}


def test_what_each_matrix_costs_is_measured_and_kept(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    config, source = load_config(checkpoint), Checkpoint.open(checkpoint)
    plan = replace(precision_plan("int4", 32), turned=True)
    arguments = (config.text, source, plan, _windows(2), tmp_path)
    costs = sensitivity(*arguments, Recorder())
    assert costs.keys() == {one.name for one in budgeted(config.text, source, plan)}
    assert all(cost > 0 for cost in costs.values())
    assert (tmp_path / "rounded.bin").stat().st_size == 0
    assert sensitivity(*arguments, again := Recorder()) == costs
    assert again.events == []


class _Louder:
    """A checkpoint whose first layer writes a hundred times as much into the stream."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self.expect = source.expect

    def read(self, name: str) -> Float32:
        return self._source.read(name) * self._factor(name)

    def rows(self, name: str, start: int, stop: int) -> Float32:
        return self._source.rows(name, start, stop) * self._factor(name)

    def _factor(self, name: str) -> np.float32:
        return np.float32(100 if ".layers.0.mlp.down_proj" in name else 1)


def test_a_matrix_costs_the_more_the_further_it_moves_the_stream(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    config, source = load_config(checkpoint), _Louder(Checkpoint.open(checkpoint))
    plan = replace(precision_plan("int4", 32), turned=True)
    costs = sensitivity(config.text, source, plan, _windows(2), tmp_path, Recorder())
    kinds = config.text.layer_types
    later = [f"layer_{i}/down" for i in range(1, len(kinds)) if kinds[i] == kinds[0]]
    assert later
    assert costs["layer_0/down"] > 20 * max(costs[name] for name in later)


def test_our_own_text_is_long_and_of_many_kinds(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    windows = read_windows(BUILT_IN, checkpoint, 1 << 20)
    assert sum(len(window.ids) for window in windows) > 15_000
    assert all(len(window.ids) == 512 for window in windows[:-1])
    text = BUILT_IN.read_text(encoding="utf-8")
    assert all(f"%% {role}\n" in text for role in ("text", "system", "user", "thought"))


@pytest.mark.parametrize("content", [b"", b"few", b"\xff\xfe"])
def test_a_text_that_cannot_be_used_is_refused_before_anything_is_made(
    tmp_path: Path, content: bytes
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5)
    (text := tmp_path / "text").write_bytes(content)
    request = ExportRequest(str(checkpoint), tmp_path / "out", target="cpu", calibration=text)
    with pytest.raises(UsageError, match="calibration text"):
        export(request, Recorder())
    assert not request.out.exists()


def test_a_pipe_is_no_calibration_text_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "text")
    with pytest.raises(UsageError, match="cannot read the calibration text"):
        text_digest(tmp_path / "text")


def test_what_is_kept_is_told_from_pieces_of_a_head_as_from_the_whole() -> None:
    rng = np.random.default_rng(0)
    exact, rounded = rng.normal(size=(2, 9, 8)).astype(np.float32)
    heads = [rng.normal(size=(50, 8)).astype(np.float32) for _ in range(2)]
    following = rng.integers(0, 50, 9)
    pieces = [(heads[0][a:b], heads[1][a:b]) for a, b in ((0, 7), (7, 31), (31, 50))]
    wanted = divergence(exact @ heads[0].T, rounded @ heads[1].T, following)
    found = compare(exact, rounded, following, pieces)
    assert found.divergence == pytest.approx(wanted.mean)
    assert found.top_1 == wanted.top_1
    assert found.perplexity == pytest.approx(wanted.perplexity)
