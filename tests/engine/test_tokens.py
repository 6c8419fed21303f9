from __future__ import annotations

import numpy as np

from q35chat.engine.tokens import Tokens


def tokens(*ids: int, images: tuple[int, ...] = (), first: int = 0) -> Tokens:
    count = len(ids)
    is_image = np.isin(np.arange(count), images)
    rows = np.arange(len(images) * 2, dtype=np.float32).reshape(-1, 2) if images else None
    positions = np.tile(np.arange(first, first + count), (3, 1))
    return Tokens(np.array(ids), positions, -np.array(ids), is_image, rows)


def test_a_part_has_the_rows_of_its_own_pictures() -> None:
    whole = tokens(4, 5, 5, 6, 5, images=(1, 2, 4))
    part = whole.part(2, 5)

    assert whole.image_ends == [0, 0, 1, 2, 2, 3]
    assert (part.ids.tolist(), part.keys.tolist()) == ([5, 6, 5], [-5, -6, -5])
    assert part.positions[0].tolist() == [2, 3, 4]
    assert part.rows is not None
    assert part.rows.tolist() == [[2, 3], [4, 5]]
    assert whole.part(3, 4).rows is None


def test_tokens_are_put_behind_one_another() -> None:
    both = tokens(4, 5, images=(1,)).then(tokens(6, first=2)).then(tokens(5, images=(0,), first=3))

    assert both.ids.tolist() == [4, 5, 6, 5]
    assert both.rows is not None
    assert len(both.rows) == 2
    assert tokens(1).then(tokens(2)).rows is None
