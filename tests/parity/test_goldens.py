"""The golden files say what transformers says today; `--rewrite-goldens` makes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import SHAPES
from tests.support.golden import load, save
from tests.support.reference import answer, fresh_golden, is_clear

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("shape", SHAPES)
def test_golden_files_are_what_transformers_answers(
    shape: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--rewrite-goldens"):
        save(fresh_golden(shape, tmp_path))
    golden = load(shape)
    live = answer(shape, golden.seed, tmp_path / "live")
    assert live.cases == golden.cases
    assert live.numbers.keys() == golden.numbers.keys()
    for name, numbers in golden.numbers.items():
        np.testing.assert_allclose(live.numbers[name], numbers, atol=1e-3, err_msg=name)
    assert is_clear(golden)
