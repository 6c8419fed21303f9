"""A chat that another process opens again goes on to the bit, on every shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.runtimes import cpu
from q35chat.states.pool import StatePool
from tests.support.exported import Exported
from tests.support.golden import SAMPLES

SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=12)
MORE, OTHER, THIRD = (Turn("user", text) for text in ("And the colour?", "No.", "Why?"))


def never() -> bool:
    return False


def run(
    engine: ChatEngine, turns: Sequence[Turn], settings: ChatSettings
) -> tuple[Turn, bytes, int]:
    """The answer, the last logits to the bit, and how many tokens were not read again."""
    *_, last = engine.run(turns, settings, never)
    assert isinstance(last, Finished)
    answer = Turn("assistant", last.text, (), last.reasoning, last.token_ids, last.reason)
    return answer, engine._model.decoder.logits().tobytes(), last.usage.reused_tokens


@pytest.mark.parametrize("thinking", [False, True])
def test_a_reopened_chat_goes_on_to_the_bit(
    exported: Exported, tmp_path: Path, thinking: bool
) -> None:
    pool = StatePool(tmp_path / "states", 1 << 30)
    left, opened, again, fresh = engines = [
        ChatEngine.open(exported.bundle, cpu(threads=1), states=kept)
        for kept in (pool, pool, pool, None)
    ]
    settings = replace(SETTINGS, thinking=thinking, thinking_budget=6, system_prompt="Be brief.")
    sample = next(sample for sample in SAMPLES if len(sample.drawings) > 1)
    files = [tmp_path / f"{number}.png" for number in range(len(sample.drawings))]
    for file, drawing in zip(files, sample.drawings, strict=True):
        drawing.image().save(file)
    pictures = tuple(left.attach(file, settings.max_image_tokens) for file in files)
    asked = [Turn("user", sample.text, pictures)]

    # a question that is answered once more: as if all were read
    first, bits, _ = run(left, asked, settings)
    left.keep(asked, settings, "chat", never)
    answer, found, reused = run(opened, asked, settings)
    assert (answer, found) == (first, bits) == run(fresh, asked, settings)[:2]
    assert reused > sum(picture.tokens for picture in pictures)

    # a follow-up: as in the process that was left
    branch = [*asked, first]
    left.read_ahead(branch, settings, never)
    left.keep(branch, settings, "chat", never)
    wanted = run(left, [*branch, MORE], settings)
    assert run(opened, [*branch, MORE], settings) == wanted
    assert wanted[2] > reused
    assert run(fresh, [*branch, MORE], settings)[0] == wanted[0]

    # another branch: from where the two part
    opened.keep([*branch, MORE, wanted[0]], settings, "chat", never)
    other = run(left, [*branch, OTHER], settings)
    left.keep([*branch, OTHER, other[0]], settings, "chat", never)
    assert run(again, [*branch, OTHER, other[0], MORE], settings) == run(
        left, [*branch, OTHER, other[0], MORE], settings
    )
    third = run(again, [*branch, THIRD], settings)
    assert third == run(left, [*branch, THIRD], settings)
    assert third[2] >= wanted[2]
    for engine in engines:
        engine.close()
