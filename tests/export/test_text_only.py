"""Models that see no pictures: exported and chatted with, and no file for pictures is asked for."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished
from q35chat.commands.export_worker import estimate
from q35chat.errors import CheckpointError, PictureError
from q35chat.runtimes import cpu
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest, ExportResult
from tests.doubles.chat_model import GREEDY, answered, never, picture, user
from tests.support.checkpoints import make_checkpoint
from tests.support.variants import TEXT_ONLY

SETTINGS = replace(GREEDY, max_new_tokens=6)


def request(folder: Path, variant: str, target: str = "cpu") -> ExportRequest:
    checkpoint = make_checkpoint(folder / "checkpoint", "even", seed=2)
    TEXT_ONLY[variant](checkpoint)
    asked = ExportRequest(str(checkpoint), folder / "out", target=target, max_seq_len=128)
    return replace(asked, precision="fp32") if target == "cpu" else asked


def exported(request: ExportRequest) -> tuple[ExportResult, str]:
    said = io.StringIO()
    return export(request, PlainReporter(said)), said.getvalue()


@pytest.mark.parametrize("variant", TEXT_ONLY)
def test_a_model_without_a_tower_is_exported_and_talks(tmp_path: Path, variant: str) -> None:
    asked = request(tmp_path, variant)
    _, said = exported(asked)
    assert ("there is no vision tower" in said) == (variant == "without-tower")
    bundle = Bundle.open(asked.out)
    assert set(bundle.manifest.graphs) == {"text"}
    assert bundle.manifest.model.image_token_id is None

    engine = ChatEngine.open(bundle, cpu(threads=1))
    (tmp_path / "a.png").write_bytes(picture(32, 32).data)
    with pytest.raises(PictureError, match=r"^a\.png cannot be shown to the model: this model"):
        engine.attach(tmp_path / "a.png", 64)
    with pytest.raises(PictureError, match="this model sees no pictures"):
        engine.plan([user("Look", picture(32, 32))], SETTINGS)
    turns = [user("Hi")]
    for question in ("And?", "Then?"):
        *_, finished = engine.run(turns, SETTINGS, never)
        assert isinstance(finished, Finished)
        turns += [answered(finished), user(question)]
    assert not engine.model.pictures
    engine.close()


def test_a_text_model_says_what_the_whole_one_says(tmp_path: Path) -> None:
    texts = []
    for name in ("whole", "qwen3_5_text"):
        folder = tmp_path / name
        asked = request(folder, "qwen3_5_text")
        if name == "whole":
            make_checkpoint(folder / "checkpoint", "even", seed=2)
        exported(asked)
        engine = ChatEngine.open(Bundle.open(asked.out), cpu(threads=1))
        *_, finished = engine.run([user("Tell me")], SETTINGS, never)
        assert isinstance(finished, Finished)
        texts.append(finished.token_ids)
        engine.close()
    assert texts[0] == texts[1]


@pytest.mark.parametrize("variant", TEXT_ONLY)
def test_the_npu_gets_the_two_graphs_of_the_decoder(tmp_path: Path, variant: str) -> None:
    asked = request(tmp_path, variant, "ascend-310p")
    exported(asked)
    assert set(Bundle.open(asked.out).manifest.graphs) == {"prefill", "decode"}


def test_a_bundle_of_a_text_model_is_up_to_date_and_repaired(tmp_path: Path) -> None:
    asked = request(tmp_path, "qwen3_5_text")
    exported(asked)
    assert exported(asked)[0].status == "up-to-date"
    (asked.out / "text" / "model.bin").write_bytes(b"")
    result, said = exported(asked)
    assert result.status == "exported"
    assert "text is exported again" in said


def test_sizes_of_a_text_model_have_no_tower(tmp_path: Path) -> None:
    found = estimate(request(tmp_path, "qwen3_5_text"))
    assert [part for part, _ in found["costs"][0]["parts"]] == ["text"]


def test_a_tower_that_is_not_there_cannot_be_exported_alone(tmp_path: Path) -> None:
    asked = replace(request(tmp_path, "without-tower"), component="vision")
    with pytest.raises(CheckpointError, match="has no vision tower, the model sees no pictures"):
        exported(asked)
    assert not asked.out.exists()
