from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from q35chat.bundle.foreign import open_bundle
from q35chat.errors import BundleError
from tests.support.checkpoints import make_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the reference scripts leave it, with the checkpoint's small files beside it."""
    checkpoint, out = make_checkpoint(tmp_path / "checkpoint"), tmp_path / "qwen"
    for name in (
        "qwen3_5_vision.mindir",
        "qwen3_5_llm_prefill_graph.mindir",
        "qwen3_5_llm_decode_graph.mindir",
    ):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"graph")
    (out / "processor").mkdir()
    for file in checkpoint.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, out / "processor")
    return out


def test_graphs_and_facts_are_found(folder: Path) -> None:
    bundle = open_bundle(folder)

    assert bundle.manifest.graphs == {
        "decode": "qwen3_5_llm_decode_graph.mindir",
        "prefill": "qwen3_5_llm_prefill_graph.mindir",
        "vision": "qwen3_5_vision.mindir",
    }
    assert bundle.graph_path("decode") == folder / "qwen3_5_llm_decode_graph.mindir"
    assert bundle.processor_dir == folder / "processor"
    facts = bundle.manifest.model
    assert (facts.vocab_size, facts.hidden_size, facts.position_grid_side) == (384, 128, 6)
    assert bundle.manifest.target == "ascend-310p"
    assert len(bundle.manifest.files["processor/tokenizer.json"].sha256) == 64


def test_without_a_picture_tower_it_is_a_bundle_for_text(folder: Path) -> None:
    (folder / "qwen3_5_vision.mindir").unlink()

    assert open_bundle(folder).manifest.graphs.keys() == {"prefill", "decode"}


def test_a_graph_is_known_by_its_own_name_before_its_folders(folder: Path) -> None:
    for name, place in (("prefill", "vision and text"), ("decode", "decode")):
        (folder / place).mkdir()
        old = folder / f"qwen3_5_llm_{name}_graph.mindir"
        old.rename(folder / place / ("model.mindir" if place == name else f"{name}.mindir"))
    found = open_bundle(folder).manifest.graphs

    assert (found["prefill"], found["decode"], found["vision"]) == (
        "vision and text/prefill.mindir",
        "decode/model.mindir",
        "qwen3_5_vision.mindir",
    )


def test_the_checkpoints_own_folder_beside_the_graphs_will_do(folder: Path) -> None:
    (folder / "processor").rename(folder / "Qwen3.5-4B")

    assert open_bundle(folder).processor_dir == folder / "Qwen3.5-4B"


def test_without_a_tokenizer_it_says_what_to_copy(folder: Path) -> None:
    (folder / "processor" / "tokenizer.json").unlink()

    with pytest.raises(BundleError, match=r"copy the checkpoint's \.json and \.jinja files into"):
        open_bundle(folder)


def test_half_a_pair_is_refused(folder: Path) -> None:
    (folder / "qwen3_5_llm_prefill_graph.mindir").unlink()

    with pytest.raises(BundleError, match="has converted graphs but no prefill graph"):
        open_bundle(folder)


def test_another_models_config_is_refused(folder: Path) -> None:
    (folder / "processor" / "config.json").write_text("{}", encoding="utf-8")

    with pytest.raises(BundleError, match=r"config\.json lacks the field 'text_config'; copy"):
        open_bundle(folder)


def test_any_other_folder_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a bundle"):
        open_bundle(tmp_path)
    with pytest.raises(BundleError, match="does not exist"):
        open_bundle(tmp_path / "gone")
