from __future__ import annotations

import numpy as np
import pytest

from q35export.matrix import Matrix, matrix, stack, take_blocks


class _Tensors:
    def __init__(self, **tensors: np.ndarray) -> None:
        self.tensors = tensors

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        assert self.tensors[name].shape == shape

    def matrix(self, name: str) -> Matrix:
        return matrix(self, name, self.tensors[name].shape)

    def read(self, name: str) -> np.ndarray:
        return self.tensors[name]

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        return self.tensors[name][start:stop]


def _numbered(n: int, k: int, base: int = 0) -> np.ndarray:
    return (np.arange(n * k, dtype=np.float32) + base).reshape(n, k)


def _all_slices_agree(whole: Matrix, expected: np.ndarray) -> None:
    assert (whole.n, whole.k) == expected.shape
    for start in range(whole.n):
        for stop in range(start + 1, whole.n + 1):
            np.testing.assert_array_equal(whole.rows(start, stop), expected[start:stop])


def test_trailing_axes_are_flattened() -> None:
    weights = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    _all_slices_agree(_Tensors(w=weights).matrix("w"), weights.reshape(2, 12))


def test_stacked_rows_follow_each_other_at_every_cut() -> None:
    parts = [_numbered(3, 4), _numbered(1, 4, 100), _numbered(5, 4, 200)]
    source = _Tensors(a=parts[0], b=parts[1], c=parts[2])
    joined = stack(*(source.matrix(name) for name in "abc"))
    _all_slices_agree(joined, np.concatenate(parts))


def test_stacking_different_widths_is_refused() -> None:
    source = _Tensors(a=_numbered(2, 4), b=_numbered(2, 5))
    with pytest.raises(ValueError, match=r"\[4, 5\]"):
        stack(source.matrix("a"), source.matrix("b"))


@pytest.mark.parametrize("offset", [0, 1])
def test_interleaved_blocks_come_apart_in_order(offset: int) -> None:
    weights = _numbered(12, 2)
    taken = take_blocks(_Tensors(w=weights).matrix("w"), block=3, every=2, offset=offset)
    expected = weights.reshape(2, 2, 3, 2)[:, offset].reshape(6, 2)
    _all_slices_agree(taken, expected)
