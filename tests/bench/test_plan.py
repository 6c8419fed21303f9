from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.bench.measure import make_plan
from q35chat.errors import CapacityError


def test_lengths_of_a_usual_capacity() -> None:
    plan = make_plan(2048)

    assert (plan.prompt, plan.tokens, plan.contexts) == (512, 128, (100, 1024, 1920))


@given(capacity=st.integers(2, 5000))
def test_what_is_not_given_fits_any_capacity(capacity: int) -> None:
    plan = make_plan(capacity)

    assert plan.contexts
    assert plan.contexts[0] >= 1
    assert plan.contexts[-1] + plan.tokens <= capacity
    assert 1 <= plan.prompt <= capacity


def test_contexts_come_in_order_and_once() -> None:
    assert make_plan(64, tokens=4, contexts=(30, 10, 30)).contexts == (10, 30)


@pytest.mark.parametrize(
    ("given_", "numbers"),
    [
        ({"prompt": 65}, "--prompt 65 needs 65 slots, capacity 64: use --prompt 64 or less"),
        ({"tokens": 64}, "need 65 slots, capacity 64: use --tokens 63 or less"),
        (
            {"tokens": 20, "contexts": (45,)},
            "a context of 45 with 20 steps needs 65 slots, capacity 64: use --context 44 or less",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers_and_a_way_on(
    given_: dict[str, object], numbers: str
) -> None:
    with pytest.raises(CapacityError) as refused:
        make_plan(64, **given_)  # type: ignore[arg-type]

    assert numbers in str(refused.value)
    assert "export with a larger --max-seq-len" in str(refused.value)
