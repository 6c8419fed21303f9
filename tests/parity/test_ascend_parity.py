"""The 310P graphs, run by the executor, against transformers' own model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from q35chat.errors import CapacityError
from q35export.verify.samples import SAMPLES, Sample
from tests.parity.ascend_case import STEPS, WAYS, Case, Way, assert_close, follow
from tests.support.pairs import in_turn

pytestmark = pytest.mark.parity

SHAPES = ("plain", "even", "full_first", "narrow_key")
CASES = (*SHAPES, "mostly_linear", "true_heads", "demo")
Cases = Callable[[str], Case]

SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Every checkpoint in transformers and as graphs, made once for all tests."""
    made: dict[str, Case] = {}

    def case(shape: str) -> Case:
        if shape not in made:
            made[shape] = Case(tmp_path_factory.mktemp(shape), shape)
        return made[shape]

    return case


@SAMPLE
@pytest.mark.parametrize("shape", CASES)
def test_logits_and_every_state_hold_the_numbers_of_fp16(
    cases: Cases, shape: str, sample: Sample
) -> None:
    way = in_turn((WAYS[1], WAYS[4]), CASES.index(shape), SAMPLES.index(sample))
    question = cases(shape).question(sample)
    wanted = cases(shape).reference.prefill(question.prompt)
    chat, logits = cases(shape).read(question, way)
    assert_close(logits, wanted.logits, "logits")
    found = chat.by_layer()
    assert found.keys() == wanted.states.keys()
    for name, state in wanted.states.items():
        assert_close(found[name], state, name)


@WAY
@pytest.mark.parametrize("shape", SHAPES)
def test_64_greedy_tokens_follow_pytorch_in_fp16(cases: Cases, shape: str, way: Way) -> None:
    case = cases(shape)
    question = case.question(in_turn(SAMPLES[:2], SHAPES.index(shape), WAYS.index(way)))
    wanted = case.wanted(question, STEPS)
    assert wanted.noise < 0.1 * wanted.greedy.logits.std()
    assert follow(*case.read(question, way), wanted) <= STEPS // 16


@WAY
@SAMPLE
def test_the_demo_model_left_alone_gives_the_64_tokens_of_pytorch_in_fp16(
    cases: Cases, sample: Sample, way: Way
) -> None:
    case = cases("demo")
    question = case.question(sample)
    wanted = case.wanted(question, STEPS).greedy
    chat, logits = case.read(question, way)
    assert chat.greedy(logits, STEPS) == wanted.tokens.tolist()


LAST = (
    (17, 9, Way("whole and exact")),
    (17, 9, Way("whole, padded past the capacity", gear=64)),
    (17, 9, Way("pieces of 4, padded", chunk=4, gear=64)),
    (2048, 2041, Way("whole, padded to the capacity", gear=2048)),
    (2048, 2041, Way("pieces of 511, padded", chunk=511, gear=512)),
)


@pytest.mark.parametrize(
    ("capacity", "count", "way"), LAST, ids=[f"{slots} slots, {way.name}" for slots, _, way in LAST]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_follow_pytorch_in_fp16_up_to_the_last_slot(
    cases: Cases, shape: str, capacity: int, count: int, way: Way
) -> None:
    case = cases(shape)
    question = case.random_text(count)
    wanted = case.wanted(question, capacity - count + 1)
    chat, logits = case.read(question, way, capacity)
    follow(chat, logits, wanted)
    assert chat.length == capacity
    assert chat.states["kv_cache"][..., -1, :].any()
    with pytest.raises(CapacityError, match=f"{capacity} of {capacity} KV slots are in use"):
        chat.step(1)
