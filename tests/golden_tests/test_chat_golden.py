"""The whole way, from a message with picture files to tokens, as transformers goes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished, PromptPlan
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.runtimes import cpu
from tests.support.exported import Exported
from tests.support.golden import SAMPLES, TOKENS, GoldenCase

SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=TOKENS)


@pytest.fixture(scope="module")
def engine(exported: Exported) -> ChatEngine:
    return ChatEngine.open(exported.bundle, cpu(threads=1))


def test_a_message_is_answered_with_the_tokens_of_transformers(
    engine: ChatEngine, case: GoldenCase, tmp_path: Path
) -> None:
    sample = next(sample for sample in SAMPLES if sample.name == case.sample)
    files = [tmp_path / f"{number}.png" for number in range(len(sample.drawings))]
    for file, drawing in zip(files, sample.drawings, strict=True):
        drawing.image().save(file)
    pictures = tuple(engine.attach(file, SETTINGS.max_image_tokens) for file in files)
    turn = Turn("user", sample.text, pictures)
    events = list(engine.run([turn], SETTINGS, lambda: False))
    plan, finished = events[0], events[-1]
    assert isinstance(plan, PromptPlan)
    assert isinstance(finished, Finished)
    assert plan.prompt_tokens == len(case.prompt_ids)
    assert finished.token_ids == case.tokens
    assert finished.reason == "length"
