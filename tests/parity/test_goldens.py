"""The golden files say what transformers says today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.parity.live import Live
from tests.support.reference import is_clear

pytestmark = pytest.mark.parity


def test_golden_files_are_what_transformers_answers(live: Live) -> None:
    golden, answers = live.exported.golden, live.answers
    assert [replace(case, least_margin=0) for case in answers.cases] == [
        replace(case, least_margin=0) for case in golden.cases
    ]
    for answer, stored in zip(answers.cases, golden.cases, strict=True):
        assert answer.least_margin == pytest.approx(stored.least_margin, abs=1e-3)
    assert answers.numbers.keys() == golden.numbers.keys()
    for name, numbers in golden.numbers.items():
        np.testing.assert_allclose(answers.numbers[name], numbers, atol=1e-3, err_msg=name)


def test_golden_answers_are_clear_and_varied(live: Live) -> None:
    assert is_clear(live.answers)
