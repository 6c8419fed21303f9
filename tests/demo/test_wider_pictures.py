"""Training draws pictures as others do; what is measured does not change with it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tools.demo_model import memory_talk
from tools.demo_model.dialogues import Writer
from tools.demo_model.pictures import Scene, names_of_tokens, target_size
from tools.demo_model.wider_pictures import draw, random_scene


@pytest.mark.parametrize("count", range(5))
def test_shapes_lie_wholly_in_the_picture_and_apart(count: int) -> None:
    for seed in range(40):
        scene = random_scene(random.Random(seed), count)
        assert len(scene.shapes) == len(set(scene.shapes)) == len(scene.spots) == count
        placed = [(x * scene.width, y * scene.height, radius) for x, y, radius in scene.spots]
        for x, y, radius in placed:
            assert radius <= min(x, y, scene.width - x, scene.height - y)
        for index, (x, y, radius) in enumerate(placed):
            for other in placed[:index]:
                assert math.dist((x, y), other[:2]) > radius + other[2]


def test_places_are_told_as_the_shapes_lie_in_reading_order() -> None:
    for seed in range(40):
        scene = random_scene(random.Random(seed), 3)
        cells = [(shape.row, shape.column) for shape in scene.shapes]
        assert cells == sorted(cells)
        assert cells == [(int(y * 3), int(x * 3)) for x, y, _ in scene.spots]


def test_the_token_in_the_middle_of_a_shape_is_named_after_it() -> None:
    for seed in range(40):
        scene = random_scene(random.Random(seed), 1)
        picture = draw(scene, random.Random(seed))
        width, height = target_size(*picture.size)
        names = names_of_tokens(picture).reshape(3, height // 32, width // 32)
        (row,), (column,) = np.nonzero(names[0])
        x, y, _ = scene.spots[0]
        assert (int(row), int(column)) == (int(y * height / 32), int(x * width / 32))


def test_only_training_draws_so_and_tells_in_other_words() -> None:
    scenes: dict[bool, list[Scene]] = {True: [], False: []}
    told: dict[bool, set[str]] = {True: set(), False: set()}
    for measuring in (True, False):
        writer = Writer(random.Random(5), measuring=measuring)
        for _ in range(60):
            writer.show(1)
            scenes[measuring] += writer.scenes
            facts = memory_talk.Facts()
            turn = memory_talk.tell(writer.rng, facts, "name", measuring)
            told[measuring].add(turn.question.replace(facts.told["name"], "").strip(" .!").lower())
    assert not any(scene.spots for scene in scenes[True])
    assert 20 < sum(bool(scene.spots) for scene in scenes[False]) < 52
    assert max(map(len, told[True])) < 40 < max(map(len, told[False]))


def test_only_training_tells_names_in_chinese_and_of_any_letters() -> None:
    said: dict[bool, str] = {}
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for measuring in (True, False):
        writer = Writer(random.Random(5), measuring=measuring)
        said[measuring] = "".join(writer.memory().question for _ in range(300))
        for _ in range(300):
            names[measuring].add(memory_talk.new_value(writer.rng, "name", measuring))
    assert said[True].isascii()
    assert "名字" in said[False]
    assert {name[-1] for name in names[False]} - {name[-1] for name in names[True]} >= {"f", "v"}


def test_a_name_told_in_chinese_is_asked_for_in_both_languages() -> None:
    rng, facts = random.Random(3), memory_talk.Facts()
    assert "没有告诉我" in memory_talk.recall_chinese(rng, facts).answer
    told = memory_talk.tell_chinese(rng, facts)
    name = facts.told["name"]
    assert name in told.question
    assert name in told.answer
    assert name in memory_talk.recall_chinese(rng, facts).answer
    assert name in memory_talk.recall(rng, facts, "name", astray=0).answer
