from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.events import shared_times

TIMES = st.lists(st.tuples(st.floats(0, 100), st.sampled_from([0.0, 5.0, 30.0])))


def test_steps_of_one_token_keep_their_times() -> None:
    assert shared_times([3.0, 1.0, 2.0], [2.0, 0.5, 1.0]) == (3.0, 1.0, 2.0)
    assert shared_times([], []) == ()


def test_tokens_of_one_run_share_its_time() -> None:
    predict = [20.0, 50.0, 0.0, 0.0, 20.0, 0.0]

    assert shared_times(predict, predict) == pytest.approx(
        (20.0, 50 / 3, 50 / 3, 50 / 3, 10.0, 10.0)
    )
    assert shared_times([21, 53, 1, 0, 22, 0], predict) == pytest.approx((21, 18, 18, 18, 11, 11))


@given(TIMES)
def test_no_time_is_lost(steps: list[tuple[float, float]]) -> None:
    wall, predict = [wall for wall, _ in steps], [predict for _, predict in steps]

    assert len(shared_times(wall, predict)) == len(wall)
    assert sum(shared_times(wall, predict)) == pytest.approx(sum(wall))
