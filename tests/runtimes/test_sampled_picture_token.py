"""A picture token that the model itself writes is an ordinary token, as in transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.runtimes.onnxruntime import OrtSession
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from tests.support.checkpoints import make_checkpoint
from tests.support.text_graph import write_text_graph


def test_a_picture_token_in_decode_keeps_its_own_embedding(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint")
    config, checkpoint = load_config(folder), Checkpoint.open(folder)
    session = OrtSession(write_text_graph(folder, tmp_path, capacity=8), threads=1)
    image = config.image_token_id
    start, places = np.array([3, 5]), np.broadcast_to(np.arange(2), (3, 2))
    own = checkpoint.rows("model.language_model.embed_tokens.weight", image, image + 1)

    stepped = OneGraphDecoder(session, image_token_id=image)
    extend(stepped, start, places)
    logits = stepped.step(image).copy()

    read = OneGraphDecoder(session, image_token_id=image)
    extend(read, start, places)
    expected = extend(read, np.array([image]), np.full((3, 1), 2), own)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    zeros = OneGraphDecoder(session, image_token_id=image)
    extend(zeros, start, places)
    blank = extend(zeros, np.array([image]), np.full((3, 1), 2), np.zeros_like(own))
    assert np.abs(blank - logits).max() > 1e-3
