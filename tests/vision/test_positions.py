from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from q35chat.vision.positions import mrope_positions


def marks(text: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A `#` is a picture token."""
    return np.array([letter == "#" for letter in text], np.bool_)


def test_text_counts_alike_on_all_axes() -> None:
    positions, delta = mrope_positions(marks("...."), [])

    assert positions.tolist() == [[0, 1, 2, 3]] * 3
    assert delta == 0


def test_a_picture_counts_rows_and_columns_and_text_goes_on_after_its_longer_side() -> None:
    positions, delta = mrope_positions(marks("..######.."), [(2, 3)])

    assert positions.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]
    assert delta == 7 - 10


def test_several_pictures_keep_their_order() -> None:
    positions, delta = mrope_positions(marks("#..####.##"), [(1, 1), (4, 1), (1, 2)])

    assert positions[0].tolist() == [0, 1, 2, 3, 3, 3, 3, 7, 8, 8]
    assert positions[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert positions[2].tolist() == [0, 1, 2, 3, 3, 3, 3, 7, 8, 9]
    assert delta == 0


def test_pictures_side_by_side_are_two() -> None:
    positions, _ = mrope_positions(marks("####"), [(1, 2), (2, 1)])

    assert positions[0].tolist() == [0, 0, 2, 2]


def test_no_token_has_no_position() -> None:
    positions, delta = mrope_positions(marks(""), [])

    assert positions.shape == (3, 0)
    assert delta == 0


def test_marks_and_grids_must_agree() -> None:
    with pytest.raises(ValueError, match="3 picture tokens, but the grids have 4"):
        mrope_positions(marks(".###."), [(2, 2)])
    with pytest.raises(ValueError, match="the picture at token 1 is not 3 tokens long"):
        mrope_positions(marks(".##.##"), [(1, 3), (1, 1)])


@pytest.mark.parity
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
