"""The decoder graph itself, run by ONNX Runtime without the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from q35export.checkpoint import Checkpoint
from q35export.config import ModelConfig, load_config
from q35export.graphs.text import build_text_graph
from q35export.precision import precision_plan
from q35export.request import Precision
from q35export.weights import WeightSink
from tests.support.checkpoints import make_checkpoint
from tests.support.text_graph import write_text_graph

CAPACITY = 24


class Decoder:
    """A graph with its states, fed by hand."""

    def __init__(self, folder: Path) -> None:
        self.session = ort.InferenceSession(str(folder / "model.onnx"))
        self.states = {
            value.name: np.zeros(value.shape, np.float32)
            for value in self.session.get_inputs()
            if value.name.startswith("past_")
        }
        self.filled = 0

    def forget(self) -> None:
        """Begin another sequence."""
        self.states = {name: np.zeros_like(state) for name, state in self.states.items()}
        self.filled = 0

    def run(self, ids: list[int], images: np.ndarray) -> np.ndarray:
        logits: np.ndarray = self.rows(ids, images, 1)[0]
        return logits

    def rows(self, ids: list[int], images: np.ndarray, count: int) -> np.ndarray:
        self.filled += len(ids)
        mask = np.zeros((1, CAPACITY), np.int32)
        mask[0, : self.filled] = 1
        places = np.arange(self.filled - len(ids), self.filled)
        feeds = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": mask,
            "position_ids": np.broadcast_to(places, (3, 1, len(ids))).astype(np.int64),
            "image_embeds": images.astype(np.float32),
            "logits_count": np.array([count], np.int64),
            **self.states,
        }
        names = [value.name for value in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(None, feeds), strict=True))
        for name in self.states:
            self.states[name] = outputs[name.replace("past_", "present_")]
        logits: np.ndarray = outputs["logits"][0]
        assert len(logits) == count
        self.maxima = outputs.get("logits_maxima", [None])[0]
        return logits


def export(
    folder: Path, shape: str, precision: Precision = "fp32", block_size: int | None = None
) -> tuple[ModelConfig, Path]:
    checkpoint, out = make_checkpoint(folder / "checkpoint", shape, seed=3), folder / precision
    write_text_graph(checkpoint, out, CAPACITY, precision_plan(precision, block_size))
    return load_config(checkpoint), out


def _no_images(config: ModelConfig) -> np.ndarray:
    return np.zeros((0, config.text.hidden_size), np.float32)


@pytest.mark.parametrize("shape", ["plain", "even", "full_first"])
def test_the_onnx_checker_accepts_the_standard_part(tmp_path: Path, shape: str) -> None:
    _, out = export(tmp_path, shape)
    model = onnx.load(out / "model.onnx", load_external_data=False)
    assert {entry.key: entry.value for entry in model.metadata_props}["q35chat.graph"] == "text"
    domains = {opset.domain for opset in model.opset_import}
    assert domains == {"", "com.microsoft"}
    names = [node.name for node in model.graph.node]
    assert len(names) == len(set(names))


def test_each_layer_adds_its_own_nodes_and_no_leftovers(tmp_path: Path) -> None:
    config, out = export(tmp_path, "plain")
    model = onnx.load(out / "model.onnx", load_external_data=False)
    kinds = Counter(node.op_type for node in model.graph.node)
    linear = config.text.layer_types.count("linear_attention")
    full = config.text.layer_types.count("full_attention")
    assert kinds["LinearAttention"] == kinds["LinearAttentionGate"] == linear
    assert kinds["GroupQueryAttention"] == full
    assert kinds["Shape"] == 1
    assert kinds["Transpose"] == kinds["Constant"] == 0


def test_kernels_that_are_slower_than_their_parts_are_not_used(tmp_path: Path) -> None:
    _, out = export(tmp_path, "plain")
    model = onnx.load(out / "model.onnx", load_external_data=False)
    kinds = {node.op_type for node in model.graph.node}
    assert not kinds & {"CausalConvWithState", "GatedRMSNorm", "GatedDeltaNet"}


@pytest.mark.parametrize(("precision", "bits"), [("int4", 4), ("int8", 8)])
@pytest.mark.parametrize("block_size", [None, 32, 64, 128])
def test_every_quantised_matrix_has_the_block_size_asked_for(
    tmp_path: Path, precision: Precision, bits: int, block_size: int | None
) -> None:
    _, out = export(tmp_path, "plain", precision, block_size)
    model = onnx.load(out / "model.onnx", load_external_data=False)
    nodes = [n for n in model.graph.node if n.op_type in {"MatMulNBits", "GatherBlockQuantized"}]
    formats = set()
    for node in nodes:
        told = {attribute.name: attribute.i for attribute in node.attribute}
        formats.add((told["bits"], told["block_size"]))
    assert len(nodes) > 10
    assert formats == {(bits, block_size or 32)}


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_prompt_read_in_two_calls_gives_the_logits_of_one(tmp_path: Path, cut: int) -> None:
    config, out = export(tmp_path, "plain")
    ids = np.random.default_rng(1).integers(0, 300, 9).tolist()
    none = _no_images(config)
    whole, parts = Decoder(out), Decoder(out)
    expected = whole.run(ids, none)
    parts.run(ids[:cut], none)
    np.testing.assert_allclose(parts.run(ids[cut:], none), expected, atol=2e-4)
    for name, state in whole.states.items():
        np.testing.assert_allclose(parts.states[name], state, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("count", range(1, 7))
def test_logits_of_the_last_tokens_are_those_of_each_read_alone(tmp_path: Path, count: int) -> None:
    config, out = export(tmp_path, "plain")
    none, ids = _no_images(config), [5, 9, 2, 9, 77, 31]
    alone = Decoder(out)
    wanted = [alone.run([token], none) for token in ids]

    found = Decoder(out).rows(ids, none, count)

    np.testing.assert_allclose(found, wanted[-count:], atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
def test_the_largest_of_each_64_logits_are_told_for_every_row(
    tmp_path: Path, precision: Precision
) -> None:
    config, out = export(tmp_path, "plain", precision)
    decoder = Decoder(out)
    for ids, count in (([5, 9, 2, 77], 3), ([31], 1)):
        logits = decoder.rows(ids, _no_images(config), count)
        wanted = logits.reshape(count, config.text.vocab_size // 64, 64).max(axis=-1)
        np.testing.assert_array_equal(decoder.maxima, wanted)


@pytest.mark.parametrize("token", range(64, 128, 9))
def test_one_logit_that_is_no_number_shows_in_all_maxima(tmp_path: Path, token: int) -> None:
    config, out = export(tmp_path, "plain")
    model = onnx.load(out / "model.onnx", load_external_data=False)
    [head] = [tensor for tensor in model.graph.initializer if tensor.name == "embed_tokens"]
    told = {entry.key: entry.value for entry in head.external_data}
    with (out / "model.bin").open("r+b") as file:
        file.seek(int(told["offset"]) + token * config.text.hidden_size * 4)
        file.write(np.float32(np.nan).tobytes())
    decoder = Decoder(out)
    logits = decoder.run([5], _no_images(config))
    assert np.flatnonzero(np.isnan(logits)).tolist() == [token]
    assert np.isnan(decoder.maxima).all()


def test_a_vocabulary_that_64_does_not_divide_has_no_maxima(tmp_path: Path) -> None:
    config, out = export(tmp_path, "even")
    assert config.text.vocab_size % 64
    decoder = Decoder(out)
    decoder.run([5], _no_images(config))
    assert decoder.maxima is None


def test_picture_rows_are_used_in_order(tmp_path: Path) -> None:
    config, out = export(tmp_path, "plain")
    image = config.image_token_id
    rows = np.random.default_rng(2).normal(size=(3, config.text.hidden_size))
    together = Decoder(out)
    expected = together.run([5, image, image, 7, image, 9], rows)
    apart = Decoder(out)
    apart.run([5, image], rows[:1])
    apart.run([image, 7], rows[1:2])
    np.testing.assert_allclose(apart.run([image, 9], rows[2:]), expected, atol=2e-4)
    swapped = Decoder(out).run([5, image, image, 7, image, 9], rows[::-1].copy())
    assert np.abs(swapped - expected).max() > 0.1


def test_a_sampled_picture_token_without_a_row_keeps_its_own_embedding(tmp_path: Path) -> None:
    config, out = export(tmp_path, "plain")
    table = Checkpoint.open(tmp_path / "checkpoint")
    own = table.rows(
        "model.language_model.embed_tokens.weight", config.image_token_id, config.image_token_id + 1
    )
    by_token = Decoder(out).run([config.image_token_id], _no_images(config))
    by_row = Decoder(out).run([config.image_token_id], own)
    np.testing.assert_array_equal(by_token, by_row)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
def test_a_tied_embedding_is_stored_once(tmp_path: Path, precision: Precision) -> None:
    config, out = export(tmp_path, "plain", precision)
    assert config.text.tied
    model = onnx.load(out / "model.onnx", load_external_data=False)
    places = [
        {entry.key: entry.value for entry in tensor.external_data}
        for tensor in model.graph.initializer
        if tensor.name.startswith(("embed_tokens", "head/"))
        if not any(part in tensor.name for part in ("scales", "fine"))
        if config.text.vocab_size in tensor.dims
    ]
    assert len({place["offset"] for place in places}) == 1


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4"])
def test_the_planned_size_is_the_written_size(tmp_path: Path, precision: Precision) -> None:
    config, out = export(tmp_path, "even", precision)
    plan = WeightSink()
    build_text_graph(
        config,
        Checkpoint.open(tmp_path / "checkpoint"),
        plan,
        capacity=CAPACITY,
        plan=precision_plan(precision),
    )
    assert plan.size == (out / "model.bin").stat().st_size
