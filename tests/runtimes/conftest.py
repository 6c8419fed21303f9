"""A small text graph of one linear and one full layer, made once and only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.shared import made_once
from tests.support.text_graph import write_text_graph

CAPACITY = 24


@pytest.fixture(scope="session")
def text_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        checkpoint = make_checkpoint(folder / "checkpoint", "narrow_key", seed=5)
        write_text_graph(checkpoint, folder / "text", CAPACITY)

    return made_once(tmp_path_factory, "text graph", make) / "text" / "model.onnx"
