"""The turned residual stream: other weights, the same network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from q35export.calibration.rotation import rotation_of
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.graphs.mtp import build_text_and_head
from q35export.precision import FLOAT_PLAN
from q35export.weights import FileSink
from tests.export.test_text_graph import CAPACITY, Decoder
from tests.support.checkpoints import SHAPES, make_checkpoint
from tests.support.text_graph import write_text_graph


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 400))
def test_every_width_has_an_orthogonal_rotation(width: int) -> None:
    rotation = rotation_of(width)
    whole = rotation.turn(np.eye(width, dtype=np.float32))
    assert np.allclose(whole @ whole.T, np.eye(width), atol=1e-5)
    assert np.allclose(rotation.turn_back(whole), np.eye(width), atol=1e-5)
    assert np.abs(whole).max() <= 2.001 / np.sqrt(width) or width < 4


def test_a_channel_that_stands_out_is_spread_over_all() -> None:
    row = np.zeros((1, 1024), np.float32)
    row[0, 17] = 100
    assert np.allclose(np.abs(rotation_of(1024).turn(row)), 100 / 32)


def _decoder(folder: Path, checkpoint: Path, *, turned: bool) -> Decoder:
    write_text_graph(checkpoint, folder, CAPACITY, replace(FLOAT_PLAN, turned=turned))
    return Decoder(folder)


@pytest.mark.parametrize("shape", [*SHAPES, "experts", "unnormalised"])
def test_a_turned_graph_computes_what_the_plain_one_does(tmp_path: Path, shape: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", shape, seed=5)
    config = load_config(checkpoint)
    plain = _decoder(tmp_path / "plain", checkpoint, turned=False)
    turned = _decoder(tmp_path / "turned", checkpoint, turned=True)
    pictures = np.random.default_rng(0).normal(size=(3, config.text.hidden_size))
    prompt = [1, 2, *[config.image_token_id] * 3, 7, 8, 9]
    for ids, images in ((prompt, pictures), ([4], pictures[:0]), ([5, 6], pictures[:0])):
        wanted = plain.rows(ids, images, len(ids))
        found = turned.rows(ids, images, len(ids))
        assert np.abs(found - wanted).max() < 1e-4
    for name in plain.states:
        assert np.allclose(plain.states[name], turned.states[name], atol=1e-4)


def test_a_turned_draft_head_reads_and_says_what_the_plain_one_does(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=5, with_mtp=True)
    config, rng = load_config(checkpoint), np.random.default_rng(0)
    hidden, cache = config.text.hidden_size, (1, config.text.num_kv_heads, CAPACITY)
    feeds = {
        "input_ids": np.array([[3, config.image_token_id, 5]]),
        "hidden": rng.normal(size=(1, 3, hidden)).astype(np.float32),
        "attention_mask": (np.arange(CAPACITY) < 3).astype(np.int32)[None],
        "position_ids": np.tile(np.arange(3), (3, 1, 1)),
        "image_embeds": rng.normal(size=(1, hidden)).astype(np.float32),
        "past_key_0": np.zeros((*cache, config.text.head_dim), np.float32),
        "past_value_0": np.zeros((*cache, config.text.head_dim), np.float32),
    }
    answers = []
    for turned in (False, True):
        folder = tmp_path / f"turned {turned}"
        folder.mkdir()
        with FileSink(folder / "model.bin", lambda _: None) as sink:
            _, head = build_text_and_head(
                config,
                Checkpoint.open(checkpoint),
                sink,
                capacity=CAPACITY,
                plan=replace(FLOAT_PLAN, turned=turned),
            )
        ir.save(head, folder / "mtp.onnx")
        session = ort.InferenceSession(str(folder / "mtp.onnx"))
        answers.append(session.run(["draft", "next_hidden"], feeds))
    (plain_draft, plain_hidden), (draft, next_hidden) = answers
    assert draft == plain_draft
    assert np.abs(next_hidden - plain_hidden).max() < 1e-4
