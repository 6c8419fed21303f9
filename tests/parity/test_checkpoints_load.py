"""transformers takes the random checkpoints as they are: nothing missing, nothing left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkpoints import SHAPES, make_checkpoint

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("shape", SHAPES)
def test_every_tensor_of_a_checkpoint_has_its_place(shape: str, tmp_path: Path) -> None:
    from transformers import Qwen3_5ForConditionalGeneration  # noqa: PLC0415

    folder = make_checkpoint(tmp_path, shape, dtype="bfloat16", shards=2, with_mtp=True)
    model, info = Qwen3_5ForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert model.config.text_config.layer_types == SHAPES[shape].layer_types
