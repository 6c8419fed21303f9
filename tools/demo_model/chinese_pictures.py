"""Questions about one picture in Chinese: what it shows and how many shapes."""

from __future__ import annotations

import random

from .phrases import Turn
from .pictures import COLOURS, FORMS, Scene
from .sight import PLACES

COLOUR = dict(zip(COLOURS, ("红色", "绿色", "蓝色", "黄色", "橙色", "紫色"), strict=True))
FORM = dict(zip(FORMS, ("圆形", "正方形", "三角形", "星形"), strict=True))
PLACE_WORDS = ("左上角", "上方", "右上角", "左边", "中间", "右边", "左下角", "下方", "右下角")
PLACE = dict(zip(PLACES, PLACE_WORDS, strict=True))
NUMBERS = ("零", "一", "两", "三")
HOW_MANY = ("图片里有几个图形？", "有多少个图形？", "图里一共有几个图形？")
DESCRIBE = (
    "图片里有什么？",
    "你看到了什么？",
    "描述一下这张图片。",
    "图里有什么？",
    "请描述图片。",
)


def ask_chinese(rng: random.Random, scene: Scene) -> Turn:
    """Description or count in Chinese."""
    found = [f"{PLACE[s.place]}有一个{COLOUR[s.colour]}的{FORM[s.form]}" for s in scene.shapes]
    thought = f"我看图片：{'，'.join(found) or '没有图形'}。"
    if rng.random() < 0.35:
        number = NUMBERS[len(found)]
        return Turn(
            rng.choice(HOW_MANY),
            f"图片里有{number}个图形。",
            thought,
            check=lambda said: f"{number}个" in said,
        )
    return Turn(
        rng.choice(DESCRIBE),
        f"{'，'.join(found)}。" if found else "图片里没有图形。",
        thought,
        check=lambda said: (
            set(said.strip("。").split("，")) == set(found) if found else "没有" in said
        ),
    )
