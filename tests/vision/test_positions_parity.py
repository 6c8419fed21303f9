"""mRoPE positions against the model class of transformers."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from q35chat.vision.positions import mrope_positions

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("merge", [1, 2])
def test_positions_and_delta_equal_get_rope_index(seed: int, merge: int) -> None:
    torch = import_module("torch")
    modeling = import_module("transformers.models.qwen3_5.modeling_qwen3_5")
    random = np.random.default_rng(seed)
    grids = [tuple(map(int, random.integers(1, 7, 2))) for _ in range(random.integers(0, 4))]
    is_image: list[bool] = []
    for rows, columns in grids:
        is_image += [False] * int(random.integers(1, 5)) + [True] * (rows * columns)
    is_image += [False] * int(random.integers(1, 5))
    reference = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=merge)),
        get_vision_position_ids=lambda *a, **k: modeling.Qwen3_5Model.get_vision_position_ids(
            None, *a, **k
        ),
    )
    patches = [[1, rows * merge, columns * merge] for rows, columns in grids]

    expected, delta = modeling.Qwen3_5Model.get_rope_index(
        reference,
        torch.zeros((1, len(is_image)), dtype=torch.long),
        torch.tensor([is_image], dtype=torch.int),
        image_grid_thw=torch.tensor(patches) if patches else None,
    )
    positions, own_delta = mrope_positions(np.array(is_image), grids)  # type: ignore[arg-type]

    np.testing.assert_array_equal(positions, expected[:, 0].numpy())
    assert own_delta == int(delta)
