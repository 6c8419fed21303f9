"""Drawn pictures as windows of the calibration: questions about them, and what the vision tower
makes of them.

Pixels come from integer arithmetic, so they are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.vision.geometry import geometry
from q35chat.vision.patches import fit, patches
from q35chat.vision.positions import mrope_positions
from q35chat.vision.rules import PictureRules
from q35export.calibration.calibrate import Window
from q35export.calibration.layers import opened
from q35export.config import ModelConfig, VisionConfig
from q35export.graphs.vision import build_vision_graph
from q35export.matrix import Float32, TensorSource
from q35export.precision import PrecisionPlan
from q35export.weights import MemorySink

Colour = tuple[int, int, int]
_WIDTH, _HEIGHT = 512, 384
_TOKENS = 400
_HERE = "%%picture%%"


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture and a conversation about it: a background from the upper to the lower colour, then
    discs (x, y, radius) and boxes (left, top, right, bottom) of a colour each."""

    above: Colour
    below: Colour
    shapes: tuple[tuple[Colour, tuple[int, ...]], ...]
    question: str
    answer: str

    def image(self) -> Image.Image:
        """The picture, RGB."""
        y, x = np.indices((_HEIGHT, _WIDTH))
        above, below = np.array(self.above), np.array(self.below)
        canvas = above + (below - above) * y[..., None] // _HEIGHT
        for colour, place in self.shapes:
            match place:
                case (left, top, right, bottom):
                    inside = (x >= left) & (x < right) & (y >= top) & (y < bottom)
                case (centre, middle, radius):
                    inside = (x - centre) ** 2 + (y - middle) ** 2 < radius**2
            canvas[inside] = colour
        return Image.fromarray(canvas.astype(np.uint8), "RGB")


SCENES = (
    Scene(
        (250, 250, 250),
        (250, 250, 250),
        (((210, 30, 40), (140, 190, 90)), ((30, 60, 200), (300, 110, 460, 270))),
        "What is in this picture?",
        "A red circle on the left and a blue square on the right, on a white background.",
    ),
    Scene(
        (10, 12, 60),
        (90, 60, 120),
        (
            ((250, 235, 160), (400, 90, 50)),
            ((20, 70, 40), (120, 480, 210)),
            ((15, 50, 30), (380, 520, 230)),
            ((90, 50, 30), (230, 250, 300, 330)),
            ((250, 210, 90), (255, 270, 275, 290)),
        ),
        "Describe the scene in two sentences.",
        "A small house with one lit window stands between two dark green hills. Above it a full, "
        "pale yellow moon hangs in a violet evening sky.",
    ),
    Scene(
        (255, 255, 255),
        (240, 240, 245),
        (
            ((60, 120, 200), (60, 260, 130, 360)),
            ((60, 120, 200), (170, 180, 240, 360)),
            ((220, 120, 40), (280, 60, 350, 360)),
            ((60, 120, 200), (390, 220, 460, 360)),
            ((40, 40, 40), (40, 360, 480, 364)),
        ),
        "请描述这张图片。",
        "这是一张柱状图，共有四根柱子。第三根是橙色的，也最高；其余三根是蓝色的，第一根最矮。",
    ),
)


def picture_windows(
    config: ModelConfig, source: TensorSource, plan: PrecisionPlan, checkpoint: Path
) -> list[Window]:
    """A window for each scene, its picture encoded by the vision tower as `plan` stores it."""
    tokenizer = ChatTokenizer(checkpoint)
    windows = []
    for scene, (rows, grid) in zip(SCENES, _encoded(config, source, plan), strict=True):
        talk = [
            {"role": "user", "content": _HERE + scene.question},
            {"role": "assistant", "content": scene.answer},
        ]
        text = tokenizer.render(talk, generation_prompt=False, thinking=True)
        left, right = map(tokenizer.encode, text.split(_HERE))
        shown = [config.image_token_id] * len(rows)
        ids = np.array(
            [*left, config.vision_start_token_id, *shown, config.vision_end_token_id, *right]
        )
        is_picture = ids == config.image_token_id
        positions, _ = mrope_positions(is_picture, [grid])
        windows.append(Window(ids, positions, np.flatnonzero(is_picture), rows))
    return windows


def _encoded(
    config: ModelConfig, source: TensorSource, plan: PrecisionPlan
) -> Iterator[tuple[Float32, tuple[int, int]]]:
    """Each scene's embeddings `[M, H]` and its rows and columns of tokens."""
    vision, sink = config.tower, MemorySink("vision.bin")
    session = opened(build_vision_graph(config, source, sink, plan=plan), sink)
    del sink
    for scene in SCENES:
        rules = _rules(vision)
        pixels, height, width = patches(fit(scene.image(), rules, _TOKENS), rules)
        taps = geometry(height, width, vision.grid_side, vision.merge_size)
        feeds: dict[str, npt.NDArray[np.generic]] = {
            "pixel_values": pixels,
            "position_index": taps.position_index,
            "position_weight": taps.position_weight,
            "patch_position": taps.patch_position,
        }
        (rows,) = session.run(["image_embeds"], feeds)
        merged = height // vision.merge_size, width // vision.merge_size
        yield np.asarray(rows, np.float32), merged


def _rules(vision: VisionConfig) -> PictureRules:
    """Pictures as the published models take them, in this model's patches."""
    half = (0.5, 0.5, 0.5)
    most = _TOKENS * (vision.patch_size * vision.merge_size) ** 2
    return PictureRules(
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.merge_size,
        min_pixels=0,
        max_pixels=most,
        mean=half,
        std=half,
    )
