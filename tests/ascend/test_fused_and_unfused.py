"""The kernels against standard operators, tensor by tensor, on one checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from q35export.verify.metrics import difference
from tests.ascend.conftest import Export
from tests.support.ascend import AscendChat

SHAPES = ("plain", "even", "full_first", "mostly_linear")


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_tensor_of_fused_graphs_is_near_its_unfused_one(
    exported: Export, shape: str, dtype: str
) -> None:
    fused = exported(shape, dtype=dtype)
    unfused = exported(shape, dtype=dtype, fused_prefill=False, fused_decode=False)
    ids = np.random.default_rng(3).integers(0, fused.config.text.vocab_size - 20, 40).tolist()
    chats = [AscendChat(fused), AscendChat(unfused)]
    for step in range(-1, 8):
        logits = [
            chat.prefill(ids[:30]) if step < 0 else chat.step(ids[30 + step]) for chat in chats
        ]
        found, wanted = (
            {"logits": row, **chat.by_layer()} for chat, row in zip(chats, logits, strict=True)
        )
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            apart = difference(found[name], tensor)
            assert apart.cosine >= 0.999, f"step {step} {name}: {apart}"
            assert apart.nrmse <= 0.02, f"step {step} {name}: {apart}"
            assert apart.max_abs <= 1.0, f"step {step} {name}: {apart}"
