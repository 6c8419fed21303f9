"""The 310P graphs, run by the executor, against transformers' own model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from q35export.graphs.ascend import AscendOptions
from q35export.verify.metrics import difference
from q35export.verify.reference import Greedy, Prompt, Reference
from q35export.verify.samples import SAMPLES, Sample
from tests.support.ascend import Array, AscendChat, encode_picture, export_ascend
from tests.support.checkpoints import make_checkpoint

pytestmark = pytest.mark.parity

SHAPES = ("plain", "even", "full_first", "narrow_key", "mostly_linear", "true_heads")
DEMO = Path(__file__).parents[2] / "assets" / "demo-model"
GEARS = (32, 128, 512)
CAPACITY = 512
STEPS = 64
TIE = 0.25  # logits apart, of a spread of about 3: kernels in FP16 may choose either


class Case:
    """One checkpoint in transformers, and as 310P graphs; "demo" is the model that comes along."""

    def __init__(self, folder: Path, shape: str, options: AscendOptions) -> None:
        checkpoint = DEMO
        if shape != "demo":
            checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=11)
        self.reference = Reference(checkpoint, threads=2)
        self.exported = export_ascend(checkpoint, folder / "graphs", options)

    def read(self, prompt: Prompt, *, chunk: int | None = None) -> tuple[AscendChat, Array]:
        """The chat after the prompt, read whole or in pieces, each padded to a gear."""
        chat = AscendChat(self.exported)
        positions = self.reference.positions(prompt)
        rows = [
            encode_picture(self.exported, picture.values, (picture.grid_h, picture.grid_w), 64)
            for picture in prompt.pictures
        ]
        images = np.concatenate(rows) if rows else None
        is_image = prompt.ids == self.exported.config.image_token_id
        logits = np.empty(0)
        for start in range(0, len(prompt.ids), chunk or len(prompt.ids)):
            part = slice(start, start + (chunk or len(prompt.ids)))
            ids = prompt.ids[part].tolist()
            taken = slice(int(is_image[:start].sum()), int(is_image[: part.stop].sum()))
            given = None if images is None or taken.start == taken.stop else images[taken]
            gear = next(gear for gear in GEARS if gear >= len(ids))
            logits = chat.prefill(ids, positions[:, part], given, gear)
        chat.delta = int(positions.max()) + 1 - len(prompt.ids)
        return chat, logits


@pytest.fixture(scope="module", params=(*SHAPES, "demo"))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    options = AscendOptions(capacity=CAPACITY, gears=GEARS, image_gears=(16, 64))
    return Case(tmp_path_factory.mktemp("case"), request.param, options)


def assert_close(found: Array, wanted: Array, what: str) -> None:
    apart = difference(found, wanted)
    assert apart.cosine >= 0.999, f"{what}: {apart}"
    assert apart.nrmse <= 0.02, f"{what}: {apart}"
    assert apart.max_abs <= 1.0, f"{what}: {apart}"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
@pytest.mark.parametrize("chunk", [None, 37], ids=["whole", "in pieces"])
def test_logits_and_every_state_hold_the_numbers_of_fp16(
    case: Case, sample: Sample, chunk: int | None
) -> None:
    prompt = case.reference.encode(sample)
    wanted = case.reference.prefill(prompt)
    chat, logits = case.read(prompt, chunk=chunk)
    assert_close(logits, wanted.logits, "logits")
    found = chat.by_layer()
    assert found.keys() == wanted.states.keys()
    for name, state in wanted.states.items():
        assert_close(found[name], state, name)


@pytest.fixture(scope="module")
def half(case: Case) -> Iterator[Reference]:
    """transformers' model in FP16, as the graphs are."""
    whole = case.reference.model
    case.reference.model = copy.deepcopy(whole).half()
    yield case.reference
    case.reference.model = whole


@pytest.mark.parametrize("case", ["plain", "even", "full_first", "narrow_key"], indirect=True)
@pytest.mark.parametrize("sample", SAMPLES[:2], ids=lambda sample: sample.name)
def test_64_greedy_tokens_are_those_of_pytorch_in_fp16(
    case: Case, half: Reference, sample: Sample
) -> None:
    prompt = half.encode(sample)
    wanted: Greedy = half.greedy(prompt, STEPS)
    chat, logits = case.read(prompt)
    undecided = 0
    for token, row, margin in zip(wanted.tokens, wanted.logits, wanted.margins(), strict=True):
        chosen = int(logits.argmax())
        if chosen != token:
            undecided += 1
            assert margin < TIE
            assert chosen == int(np.argsort(row)[-2])
        logits = chat.step(int(token))
    assert undecided <= STEPS // 8


def test_the_demo_model_left_alone_gives_the_64_tokens_of_pytorch_in_fp16(tmp_path: Path) -> None:
    options = AscendOptions(capacity=CAPACITY, gears=GEARS, image_gears=(16, 64))
    case = Case(tmp_path, "demo", options)
    case.reference.model = case.reference.model.half()
    for sample in SAMPLES:
        prompt = case.reference.encode(sample)
        wanted = case.reference.greedy(prompt, STEPS)
        chat, logits = case.read(prompt)
        assert chat.greedy(logits, STEPS) == wanted.tokens.tolist(), sample.name
