"""MindSpore Lite 2.0.0's own converter and CPU runtime on the graphs without Custom nodes.

What this old version cannot do is written down here, operator by operator; the exporter avoids
what it can avoid at no cost (`Cast` from int32 to bool, `GreaterOrEqual`, a `Where` that
broadcasts, pads that two `Pad` nodes share, an integer `Mod` of a negative number, a `Conv` without
strides and dilations).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.vision.geometry import geometry
from q35chat.vision.rules import PictureRules
from q35export.ascend.graphs import AscendOptions
from q35export.request import DType
from tests.lite.environment import call
from tests.support.ascend import STATES, Array, Exported, export_ascend
from tests.support.checkpoints import make_checkpoint
from tests.support.golden import SAMPLES, Golden, load
from tests.support.patchify import patchify

SHAPES = ("plain", "even")
PREFILL_GEAR = 128
IMAGE_GEAR = 64


class Lite:
    """Graphs of a golden checkpoint converted by MindSpore Lite, each run in a process."""

    def __init__(self, folder: Path, shape: str) -> None:
        self.folder = folder
        self.golden: Golden = load(shape)
        checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=self.golden.seed)
        self.rules = PictureRules.read(checkpoint)
        options = AscendOptions(
            capacity=256,
            gears=(PREFILL_GEAR,),
            image_gears=(IMAGE_GEAR,),
            dtype="fp32",
            fused_prefill=False,
            fused_decode=False,
        )
        self.exported: Exported = export_ascend(checkpoint, folder / "graphs", options)
        for name in self.exported.graphs:
            done = call("convert", folder / "graphs" / name / "model.onnx", folder / name)
            assert "CONVERT RESULT SUCCESS" in done.stdout, done.stderr

    def run(self, graph: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
        arrays: dict[str, Any] = dict(feeds)
        np.savez(self.folder / "in.npz", **arrays)
        files = (self.folder / f"{graph}.mindir", self.folder / "in.npz", self.folder / "out.npz")
        done = call("run", *files)
        assert done.returncode == 0, done.stderr
        names = [info.name for info in self.exported.graphs[graph].outputs]
        with np.load(self.folder / "out.npz") as results:
            return dict(zip(names, results.values(), strict=True))


@pytest.fixture(scope="module", params=SHAPES)
def lite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lite:
    return Lite(tmp_path_factory.mktemp("lite"), request.param)


def picture_rows(lite: Lite) -> Array:
    """The picture of the sample, padded to its gear; only its own rows."""
    drawing = next(s for s in SAMPLES if s.name == "one picture").drawings[0]
    pixels, height, width = patchify(drawing.image(), lite.rules)
    vision = lite.exported.config.tower
    place = geometry(height, width, vision.grid_side, vision.merge_size)
    count, patches = len(pixels), IMAGE_GEAR * vision.merge_size**2
    arrays: dict[str, Array] = {
        "pixel_values": pixels,
        "position_index": place.position_index,
        "position_weight": place.position_weight,
        "patch_position": place.patch_position,
    }
    feeds = {
        name: np.concatenate([array, np.zeros((patches - count, array.shape[1]), array.dtype)])
        for name, array in arrays.items()
    }
    mask = (np.arange(patches) < count).astype(np.int32)[None]
    rows = lite.run("vision", feeds | {"patch_mask": mask})["image_embeds"]
    kept: Array = rows[: count // vision.merge_size**2]
    return kept


def test_a_picture_a_prompt_and_a_step_give_the_numbers_of_transformers(lite: Lite) -> None:
    case = lite.golden.case("one picture")
    rows = picture_rows(lite)
    wanted = lite.golden.numbers["one picture rows 0"]
    np.testing.assert_allclose(rows[[0, 1, -1]], wanted, atol=2e-3)
    count = len(case.prompt_ids)
    positions = np.zeros((4, 1, PREFILL_GEAR), np.int32)
    positions[0, 0] = np.arange(PREFILL_GEAR)
    positions[1:, 0, :count] = case.positions
    ids = np.zeros((1, PREFILL_GEAR), np.int32)
    ids[0, :count] = case.prompt_ids
    prefilled = lite.run(
        "prefill",
        {
            "input_ids": ids,
            "attention_mask": (np.arange(PREFILL_GEAR) < count).astype(np.int32)[None],
            "position_ids": positions,
            "image_embeds": rows,
        },
    )
    logits = prefilled["logits"][0, 0]
    np.testing.assert_allclose(logits, lite.golden.numbers["one picture logits"][0], atol=5e-3)
    assert int(logits.argmax()) == case.tokens[0]
    states = {f"past_{name}": prefilled[f"present_{name}"] for name in STATES}
    states["past_kv_cache"] = states["past_kv_cache"][..., :count, :]
    place = int(np.max(case.positions)) + 1
    stepped = lite.run(
        "decode",
        {
            "input_ids": np.array([[case.tokens[0]]], np.int32),
            "attention_mask": np.ones((1, count + 1), np.int32),
            "position_ids": np.array([count, place, place, place], np.int32).reshape(4, 1, 1),
            **states,
        },
    )
    assert int(stepped["logits"][0, 0].argmax()) == case.tokens[1]


@pytest.mark.parametrize(
    ("component", "step_tokens"), [("prefill", 1), ("decode", 1), ("decode", 4)]
)
def test_what_2_0_0_cannot_read_is_the_custom_operator(
    tmp_path: Path, component: str, step_tokens: int
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=1)
    settings = AscendOptions(capacity=64, step_tokens=step_tokens)
    export_ascend(checkpoint, tmp_path / "graphs", settings, (component,))
    done = call("convert", tmp_path / "graphs" / component / "model.onnx", tmp_path / component)
    assert done.returncode != 0
    missing = [line.split("OP TYPE: ")[1] for line in done.stderr.splitlines() if "OP TYPE" in line]
    assert missing == ["Custom"]


@pytest.mark.parametrize(("dtype", "step_tokens"), [("fp16", 1), ("fp32", 1), ("fp32", 4)])
def test_a_prefill_from_states_without_kernels_is_converted(
    tmp_path: Path, dtype: DType, step_tokens: int
) -> None:
    """FP16 graphs are converted but end the process of the x86 runtime, which has no FP16."""
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=1)
    gears = (1, 32) if step_tokens > 1 else (32,)
    settings = AscendOptions(64, gears, dtype=dtype, fused_prefill=False, step_tokens=step_tokens)
    export_ascend(checkpoint, tmp_path / "graphs", settings, ("prefill",))
    done = call("convert", tmp_path / "graphs" / "prefill" / "model.onnx", tmp_path / "out")
    assert "CONVERT RESULT SUCCESS" in done.stdout, done.stderr
