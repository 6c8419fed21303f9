"""The engine over real bundles: exported graphs, ONNX Runtime, pictures, reuse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished, Token
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.engine.one_graph import OneGraphRuntime
from q35chat.engine.session import GraphSession
from q35chat.errors import BundleError
from q35chat.runtimes import cpu
from tests.doubles.chat_model import GREEDY, answered, never, user
from tests.doubles.vision_session import VisionSession
from tests.support.exported import random_bundle

SETTINGS = replace(GREEDY, max_new_tokens=12)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(random_bundle(tmp_path_factory, precision="fp32", max_seq_len=256))


@pytest.fixture(scope="module")
def runtime() -> OneGraphRuntime:
    return cpu(threads=1)


@pytest.fixture
def engine(bundle: Bundle, runtime: OneGraphRuntime) -> ChatEngine:
    return ChatEngine.open(bundle, runtime)


def noise(width: int, height: int, seed: int) -> Attachment:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    data = stream.getvalue()
    return Attachment(hashlib.sha256(data).hexdigest(), "noise.png", data, width, height, 0)


def finish(engine: ChatEngine, turns: list[Turn], settings: ChatSettings = SETTINGS) -> Finished:
    *_, last = engine.run(turns, settings, never)
    assert isinstance(last, Finished)
    return last


def test_the_meters_are_told_what_runs(engine: ChatEngine, bundle: Bundle) -> None:
    info = engine.model

    assert (info.target, info.precision, info.capacity) == ("cpu", "fp32", 256)
    assert info.name == bundle.manifest.source.name
    assert not info.is_demo


def test_the_vocabulary_is_named_by_its_file(engine: ChatEngine, bundle: Bundle) -> None:
    data = (bundle.processor_dir / "tokenizer.json").read_bytes()

    assert engine.vocabulary == hashlib.sha256(data).hexdigest()


def test_sampling_defaults_are_the_checkpoints(engine: ChatEngine) -> None:
    assert (engine.sampling_defaults.top_k, engine.sampling_defaults.top_p) == (20, 0.95)


@pytest.fixture
def questions() -> list[Turn]:
    return [
        user("Hello the picture"),
        user("Look", noise(64, 96, 1)),
        user("And these?", noise(200, 60, 2), noise(64, 64, 3)),
    ]


def test_a_conversation_with_pictures_reads_like_one_read_from_the_start(
    engine: ChatEngine,
    bundle: Bundle,
    runtime: OneGraphRuntime,
    questions: list[Turn],
) -> None:
    turns: list[Turn] = []
    reused = 0
    for question in questions:
        turns.append(question)
        finished = finish(engine, turns)
        fresh = finish(ChatEngine.open(bundle, runtime), turns)
        reused += finished.usage.reused_tokens

        assert finished.token_ids == fresh.token_ids
        assert fresh.usage.reused_tokens == 0
        turns.append(answered(finished))

    assert reused > 40


def test_pictures_change_what_is_said(engine: ChatEngine) -> None:
    answers = {finish(engine, [user("Look", noise(64, 64, seed))]).token_ids for seed in range(3)}

    assert len(answers) == 3


def test_every_slot_is_used(engine: ChatEngine) -> None:
    endless = replace(GREEDY, loop_guard=False)
    turns = [user("Hello"), Turn("assistant", "the picture " * 30)]
    finished = finish(engine, turns, endless)
    while finished.reason == "stop":
        turns = [*turns, answered(finished), user("more")]
        finished = finish(engine, turns, endless)

    assert finished.reason == "capacity"
    assert finished.usage.capacity_used == 256


def test_a_step_makes_no_value_and_no_binding(
    engine: ChatEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for kind in (onnxruntime.OrtValue, onnxruntime.IOBinding):
        monkeypatch.setattr(kind, "__init__", noted(kind, made))
    before_first_token = 0
    for event in engine.run([user("Hello")], SETTINGS, never):
        if isinstance(event, Token):
            before_first_token = before_first_token or len(made)

    assert len(made) == before_first_token > 0


def noted(kind: Any, made: list[str]) -> Callable[..., None]:
    original: Callable[..., None] = kind.__init__

    def init(*arguments: object, **options: object) -> None:
        made.append(kind.__name__)
        original(*arguments, **options)

    return init


def test_graphs_of_different_width_are_refused(bundle: Bundle, runtime: OneGraphRuntime) -> None:
    def mixed(path: Path) -> GraphSession:
        return VisionSession() if path.parent.name == "vision" else runtime.open_graph(path)

    with pytest.raises(BundleError, match="rows of 6 numbers, text graph takes 128"):
        ChatEngine.open(bundle, OneGraphRuntime(mixed))


@pytest.fixture
def without_generation_config(bundle: Bundle) -> Iterator[Bundle]:
    path = bundle.processor_dir / "generation_config.json"
    moved = path.rename(path.with_suffix(".moved"))
    yield bundle
    moved.rename(path)


def test_without_generation_defaults_the_tokenizer_and_the_configuration_name_the_ends(
    without_generation_config: Bundle, runtime: OneGraphRuntime
) -> None:
    engine = ChatEngine.open(without_generation_config, runtime)

    end = engine.tokenizer.id_of("<|endoftext|>")  # of `text_config`, as in transformers
    assert engine._model.stop_ids == engine.tokenizer.end_ids | {end}
    assert engine.sampling_defaults.temperature == 0.0
