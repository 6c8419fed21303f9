"""The 310P graphs against what transformers answered once, without torch: text and pictures,
whole prompts through every gear and prompts in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.vision.rules import PictureRules
from q35export.ascend.graphs import AscendOptions
from q35export.verify.metrics import difference
from tests.support.ascend import Array, AscendChat, Exported, encode_picture, export_ascend
from tests.support.checkpoints import make_checkpoint
from tests.support.golden import SAMPLES, TOKENS, Golden, GoldenCase, load
from tests.support.pairs import in_turn
from tests.support.patchify import patchify

SHAPES = ("plain", "even", "full_first", "narrow_key", "mostly_linear", "true_heads")
GEARS = (32, 128, 512)
EXACT = 1e-3
TIE = 0.25  # logits apart, of a spread of about 3: kernels in FP16 may choose either


class Case:
    """A golden checkpoint as graphs: fused in FP16, and unfused in FP32."""

    def __init__(self, folder: Path, shape: str) -> None:
        self.golden: Golden = load(shape)
        checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=self.golden.seed)
        self._rules = PictureRules.read(checkpoint)
        common: dict[str, Any] = {"capacity": 512, "gears": GEARS, "image_gears": (16, 64)}
        self.fused = export_ascend(checkpoint, folder / "fused", AscendOptions(**common))
        unfused = AscendOptions(**common, dtype="fp32", fused_prefill=False, fused_decode=False)
        self.unfused = export_ascend(checkpoint, folder / "unfused", unfused)

    def read(
        self, exported: Exported, case: GoldenCase, *, gear: int | None = None, chunk: int = 512
    ) -> tuple[AscendChat, Array]:
        """The chat after the prompt in chunks, each padded to `gear` or to the next one."""
        chat, positions = AscendChat(exported), np.array(case.positions)
        images = self._images(exported, case)
        is_image = np.array(case.prompt_ids) == exported.config.image_token_id
        logits = np.empty(0)
        for start in range(0, len(case.prompt_ids), chunk):
            ids = case.prompt_ids[start : start + chunk]
            part = slice(start, start + len(ids))
            rows = images[is_image[:start].sum() : is_image[: part.stop].sum()]
            width = gear or next(gear for gear in GEARS if gear >= len(ids))
            given = rows if len(rows) else None
            logits = chat.prefill(ids, positions[:, part], given, width)
        chat.delta = int(positions.max()) + 1 - len(case.prompt_ids)
        return chat, logits

    def _images(self, exported: Exported, case: GoldenCase) -> Array:
        sample = next(sample for sample in SAMPLES if sample.name == case.sample)
        rows = [np.empty((0, exported.config.text.hidden_size))]
        for drawing in sample.drawings:
            pixels, height, width = patchify(drawing.image(), self._rules)
            rows.append(encode_picture(exported, pixels, (height, width), 64))
        return np.concatenate(rows)


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(params=[sample.name for sample in SAMPLES])
def sample(request: pytest.FixtureRequest, case: Case) -> GoldenCase:
    return case.golden.case(request.param)


def test_unfused_fp32_graphs_give_the_tokens_of_transformers(
    case: Case, sample: GoldenCase
) -> None:
    chat, logits = case.read(case.unfused, sample)
    wanted = case.golden.numbers[f"{sample.sample} logits"]
    np.testing.assert_allclose(logits, wanted[0], atol=EXACT)
    assert tuple(chat.greedy(logits, TOKENS)) == sample.tokens


def test_fused_fp16_graphs_follow_transformers(case: Case, sample: GoldenCase) -> None:
    follows(case, sample, None, 512, TOKENS)


def test_fused_fp16_graphs_read_a_prompt_through_every_gear_and_in_pieces(
    case: Case, sample: GoldenCase
) -> None:
    places = SHAPES.index(case.golden.shape), case.golden.cases.index(sample)
    gear, chunk = in_turn([(512, 512), (128, 33), (32, 32)], *places)
    follows(case, sample, gear, chunk, 8)


def follows(case: Case, sample: GoldenCase, gear: int | None, chunk: int, count: int) -> None:
    chat, logits = case.read(case.fused, sample, gear=gear, chunk=chunk)
    first, last = case.golden.numbers[f"{sample.sample} logits"]
    apart = difference(logits, first)
    assert apart.cosine >= 0.999
    assert apart.nrmse <= 0.02
    assert apart.max_abs <= 1.0
    undecided = 0
    for number, token in enumerate(sample.tokens[:count]):
        if int(logits.argmax()) != token:
            undecided += 1
            assert logits.max() - logits[token] < TIE
        if number + 1 < TOKENS:
            logits = chat.step(token)
    assert undecided <= TOKENS // 8
    assert count < TOKENS or difference(logits, last).nrmse <= 0.02
