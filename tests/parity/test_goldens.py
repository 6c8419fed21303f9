"""The golden files say what transformers says today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity.live import Live
from tests.support.reference import answer, is_clear

pytestmark = pytest.mark.parity


def test_golden_files_are_what_transformers_answers_clearly_and_with_variety(live: Live) -> None:
    golden = live.exported.golden
    answers = answer(live.reference, golden.shape, golden.seed)
    assert [replace(case, least_margin=0) for case in answers.cases] == [
        replace(case, least_margin=0) for case in golden.cases
    ]
    for found, stored in zip(answers.cases, golden.cases, strict=True):
        assert found.least_margin == pytest.approx(stored.least_margin, abs=1e-3)
    assert answers.numbers.keys() == golden.numbers.keys()
    for name, numbers in golden.numbers.items():
        np.testing.assert_allclose(answers.numbers[name], numbers, atol=1e-3, err_msg=name)
    assert is_clear(answers)
