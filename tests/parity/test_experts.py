"""Mixtures of experts in FP32 beside transformers' own: states, routing and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.engine.decoder import extend
from q35chat.vision.rules import PictureRules
from q35export.request import Precision
from q35export.verify import verify
from q35export.verify.candidate import Candidate
from q35export.verify.compare import aligned
from q35export.verify.reference import EncodedPrompt, Patches
from q35export.verify.samples import Sample
from tests.parity.test_fp32 import assert_same
from tests.support.checkpoints import EXPERT_SHAPES, make_checkpoint
from tests.support.experts import router_scores
from tests.support.exported import CAPACITY, export_checkpoint
from tests.support.golden import SAMPLES
from tests.support.patchify import patchify
from tests.support.reference import LiveReference
from tests.support.shared import made_once

pytestmark = pytest.mark.parity

SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
TOKENS = 32
CHUNKS = {"experts": 7, "odd_experts": 1, "one_choice": 64, "all_chosen": 13, "unnormalised": 30}


@dataclass(frozen=True, slots=True)
class Case:
    """A random model: in transformers and exported."""

    shape: str
    bundle: Bundle
    reference: LiveReference
    candidate: Candidate

    def prompt(self, sample: Sample) -> EncodedPrompt:
        """The sample, its pictures cut up by q35chat."""
        rules = PictureRules.read(self.bundle.processor_dir)
        pictures = [patchify(drawing.image(), rules) for drawing in sample.drawings]
        ids = self.reference.encode(sample).ids
        return EncodedPrompt(ids, tuple(Patches(*picture) for picture in pictures))

    def chosen(self, scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The experts of each token, best first."""
        order = np.argsort(-scores, axis=-1, kind="stable")
        return np.asarray(order[:, : EXPERT_SHAPES[self.shape].chosen])


@pytest.fixture(scope="module", params=EXPERT_SHAPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    def make(folder: Path) -> None:
        checkpoint = make_checkpoint(folder / "checkpoint", request.param, seed=1)
        export_checkpoint(checkpoint, folder / "out")

    folder = made_once(tmp_path_factory, ("experts", request.param), make)
    reference = LiveReference(folder / "checkpoint", threads=1)
    if not EXPERT_SHAPES[request.param].normalised:
        leave_weights_as_they_are(reference)
    bundle = Bundle.open(folder / "out")
    return Case(request.param, bundle, reference, Candidate(bundle, threads=1))


def leave_weights_as_they_are(reference: LiveReference) -> None:
    """transformers' model always normalises, and reads no `norm_topk_prob`."""

    def unnormalised(_: Any, inputs: Any, output: Any) -> Any:
        del inputs
        scores, weights, indices = output
        return scores, scores.softmax(-1).gather(-1, indices).to(weights.dtype), indices

    for layer in reference.model.model.language_model.layers:
        layer.mlp.gate.register_forward_hook(unnormalised)


@SAMPLE
def test_every_state_after_the_prompt_is_that_of_transformers(case: Case, sample: Sample) -> None:
    prompt = case.prompt(sample)
    wanted, found = case.reference.prefill(prompt), case.candidate.prefill(prompt)
    assert wanted.states.keys() == found.states.keys()
    assert_same(found.logits, wanted.logits)
    for name, state in wanted.states.items():
        assert_same(aligned(found.states[name], state), state)


@SAMPLE
def test_greedy_tokens_of_a_prompt_in_chunks_are_those_of_generate(
    case: Case, sample: Sample
) -> None:
    prompt = case.prompt(sample)
    decoder = case.candidate.new_decoder(CHUNKS[case.shape])
    positions, embeds = case.candidate.positions(prompt), case.candidate.embeds(prompt)
    logits = extend(decoder, prompt.ids, positions, embeds)
    tokens = [int(logits.argmax())]
    while len(tokens) < TOKENS:
        tokens.append(int(decoder.step(tokens[-1]).argmax()))
    assert tokens == case.reference.greedy(prompt, TOKENS).tokens.tolist()


@SAMPLE
def test_every_token_takes_the_experts_that_it_takes_in_transformers(
    case: Case, sample: Sample
) -> None:
    prompt = case.prompt(sample)
    wanted: list[npt.NDArray[Any]] = []
    hooks = [
        layer.mlp.gate.register_forward_hook(
            lambda _, inputs, output: wanted.append(output[2].numpy())
        )
        for layer in case.reference.model.model.language_model.layers
    ]
    case.reference.prefill(prompt)
    for hook in hooks:
        hook.remove()
    embeds, length = case.candidate.embeds(prompt), len(prompt.ids)
    nothing = np.zeros((0, case.bundle.manifest.model.hidden_size), np.float32)
    feeds: dict[str, npt.NDArray[Any]] = {
        "input_ids": prompt.ids[None],
        "attention_mask": (np.arange(CAPACITY) < length).astype(np.int32)[None],
        "position_ids": case.candidate.positions(prompt)[:, None],
        "image_embeds": nothing if embeds is None else embeds,
        "logits_count": np.ones(1, np.int64),
    }
    found = router_scores(case.bundle.graph_path("text"), feeds)
    assert len(found) == len(wanted) == len(EXPERT_SHAPES[case.shape].layers)
    for scores, experts in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(case.chosen(scores), experts)


@pytest.mark.parametrize(("shape", "precision"), [("experts", "int4"), ("all_chosen", "int8")])
def test_a_calibrated_bundle_computes_what_its_stored_weights_say(
    tmp_path: Path, shape: str, precision: Precision
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", shape, seed=1)
    bundle = export_checkpoint(checkpoint, tmp_path / "out", precision, calibrate=True)
    report = verify(bundle.path, checkpoint, tokens=8, threads=1)
    assert report.passed, report.table()
    graph = [row for row in report.tensors if row.comparison == "graph"]
    assert max(row.difference.nrmse for row in graph) < 1e-4
    assert all(row.equal == 8 for row in report.tokens if row.comparison == "graph")


@pytest.mark.parametrize("shape", EXPERT_SHAPES)
def test_every_tensor_of_a_checkpoint_has_its_place(shape: str, tmp_path: Path) -> None:
    from transformers import Qwen3_5MoeForConditionalGeneration  # noqa: PLC0415

    folder = make_checkpoint(tmp_path, shape, dtype="bfloat16", shards=2, with_mtp=True)
    _, info = Qwen3_5MoeForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    empty = {name for name in info.pop("missing_keys") if ".shared_expert" in name}
    assert bool(empty) == (not EXPERT_SHAPES[shape].shared)
    assert not any(info.values()), info
