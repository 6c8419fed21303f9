"""The engine over 310P graphs, run by the stand-in, against transformers' own model in FP16: one
graph for all, steps of several tokens of which some are wrong, and both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.native_log import NativeLog
from q35chat.engine.decoder import extend
from q35chat.engine.session import Array
from q35chat.engine.speculation import DraftSource, Odds, Speculator
from q35export.verify.samples import SAMPLES, Sample
from tests.doubles.guesses import Guesses
from tests.parity.ascend_case import CAPACITY, MODES, STEPS, Case, Mode, Question, follow
from tests.parity.test_ascend_parity import SHAPES, Cases, cases
from tests.support.pairs import in_turn

__all__ = ["cases"]

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("npu")]

MODE = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
WRONG = 0.3


@pytest.fixture
def log(tmp_path: Path) -> Iterator[NativeLog]:
    found = NativeLog(tmp_path / "native.log")
    yield found
    found.remove()


def read(
    case: Case, question: Question, mode: Mode, log: NativeLog, capacity: int = CAPACITY
) -> tuple[GearedDecoder, Array]:
    decoder = case.decoder(mode, log, capacity)
    extend(decoder, question.prompt.ids, question.positions, question.rows)
    return decoder, decoder.logits().copy()


def guessing(decoder: GearedDecoder, said: Sequence[int]) -> Speculator:
    """Steps with guesses of what will be said, of which some are wrong."""
    return Speculator(decoder, [DraftSource(Guesses(said, WRONG), Odds())], always=True)


@MODE
@pytest.mark.parametrize("shape", SHAPES)
def test_64_greedy_tokens_follow_pytorch_in_fp16(
    cases: Cases, shape: str, mode: Mode, log: NativeLog
) -> None:
    case = cases(shape)
    question = case.question(in_turn(SAMPLES[:2], SHAPES.index(shape), MODES.index(mode)))
    wanted = case.wanted(question, STEPS)
    decoder, logits = read(case, question, mode, log)
    steps = guessing(decoder, wanted.greedy.tokens.tolist())

    assert follow(steps, logits, wanted) <= STEPS // 16
    assert (steps.drafted > steps.accepted > 0) == (mode.step_tokens > 1)


@MODE
@pytest.mark.parametrize("sample", SAMPLES[:2], ids=lambda sample: sample.name)
def test_the_demo_model_left_alone_gives_the_64_tokens_of_pytorch_in_fp16(
    cases: Cases, sample: Sample, mode: Mode, log: NativeLog
) -> None:
    case = cases("demo")
    question = case.question(sample)
    wanted = case.wanted(question, STEPS).greedy.tokens.tolist()
    decoder, logits = read(case, question, mode, log)
    steps = guessing(decoder, wanted)
    tokens = [int(logits.argmax())]
    while len(tokens) < STEPS:
        tokens.append(int(steps.step(tokens[-1]).argmax()))

    assert tokens == wanted


@MODE
@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_follow_pytorch_in_fp16_up_to_the_last_slot(
    cases: Cases, shape: str, mode: Mode, log: NativeLog
) -> None:
    case, capacity, count = cases(shape), 17, 9
    question = case.random_text(count)
    wanted = case.wanted(question, capacity - count + 1)
    decoder, logits = read(case, question, mode, log, capacity)

    follow(guessing(decoder, wanted.greedy.tokens.tolist()), logits, wanted)
    assert decoder.used == capacity
