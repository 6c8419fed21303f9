"""The demo model, exported, answers questions that it never saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from q35export.request import Precision
from tools.demo_model.evaluate import GREEDY, Asked
from tools.demo_model.held_out import (
    Question,
    held_out_conversations,
    held_out_memory_questions,
    held_out_picture_questions,
)

Open = Callable[[Precision], Asked]
PICTURES = Path(__file__).parents[2] / "assets" / "pictures"


def plain(text: str, *pictures: Image.Image) -> Question:
    parts = [{"type": "image"} for _ in pictures] + [{"type": "text", "text": text}]
    content = parts if pictures else text
    return Question([{"role": "user", "content": content}], list(pictures), "", lambda said: True)


# A question is asked in one of the precisions; 3 % of the answers may be wrong, of int4 5 %.
PART = pytest.mark.parametrize(("part", "precision"), [(0, "fp32"), (1, "int8"), (2, "int4")])
WRONG = {"fp32": 0.03, "int8": 0.03, "int4": 0.05}


@PART
def test_fresh_picture_questions(demo_bundle: Open, part: int, precision: Precision) -> None:
    questions = held_out_picture_questions(500)[part::3]
    assert len(demo_bundle(precision).wrong(questions)) <= WRONG[precision] * len(questions)


@PART
def test_fresh_memory_questions(demo_bundle: Open, part: int, precision: Precision) -> None:
    questions = held_out_memory_questions(200)[part::3]
    assert len(demo_bundle(precision).wrong(questions)) <= WRONG[precision] * len(questions)


def test_last_turns_of_long_mixed_conversations(demo_bundle: Open) -> None:
    assert len(demo_bundle("int4").wrong(held_out_conversations(60))) <= 7


@pytest.mark.parametrize("last", [3, 20, 100, 199])
def test_it_counts_as_far_as_asked_and_stops(demo_bundle: Open, last: int) -> None:
    long = GREEDY.__class__(sampling=GREEDY.sampling, max_new_tokens=1500)
    finished = demo_bundle("int4").answer(plain(f"Count to {last}"), long)
    assert finished.text.split() == [str(number) for number in range(1, last + 1)]
    assert finished.reason == "stop"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Hello!", "Hello"),
        ("Who are you?", "demo model"),
        ("How do I get a real model?", "q35chat export Qwen/Qwen3.5-0.8B --out out/"),
        ("How do I attach a picture?", "press Ctrl+O"),
        ("How do I attach a picture?", "--image photo.jpg"),
        ("What is the capacity meter?", "--max-seq-len"),
        ("What is the capital of France?", "q35chat export"),
        ("Write a poem about the sea.", "q35chat export"),
        ("你好", "演示模型"),
        ("怎么导出模型？", "q35chat export"),
    ],
)
def test_it_knows_the_program(demo_bundle: Open, question: str, said: str) -> None:
    finished = demo_bundle("int4").answer(plain(question))
    assert said in finished.text
    assert finished.reason == "stop"


def test_it_thinks_and_stops_thinking(demo_bundle: Open) -> None:
    finished = demo_bundle("int4").answer(plain("Who are you?"), GREEDY.with_thinking(True))
    assert finished.reasoning.strip()
    assert "demo model" in finished.text
    assert finished.reason == "stop"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("shapes.png", {"red circle", "blue square", "green triangle"}),
        ("two-circles.jpg", {"yellow circle", "purple circle"}),
        ("triangle.webp", {"orange triangle"}),
        ("wide.png", {"green star", "purple circle", "orange square"}),
        ("alpha.png", {"blue star", "red square"}),
    ],
)
def test_it_sees_the_sample_pictures(demo_bundle: Open, name: str, seen: set[str]) -> None:
    with Image.open(PICTURES / name) as image:
        picture = ImageOps.exif_transpose(image).copy()
    said = demo_bundle("int4").answer(plain("What do you see?", picture)).text
    assert {shape for shape in seen if shape in said} == seen
