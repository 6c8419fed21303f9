"""`export --mtp`: the head for drafts in the bundle, and what is refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from safetensors.numpy import load_file, save_file

from q35chat.bundle.bundle import Bundle
from q35chat.errors import CheckpointError, UsageError
from q35export.calibration import frequent
from q35export.config import load_config
from q35export.pipeline import export
from q35export.request import ExportRequest
from q35export.verify.candidate import exact_copy
from q35export.verify.stored_weights import stored_weights
from tests.export.bundles import request_for
from tests.export.recorder import Recorder
from tests.support.checkpoints import make_checkpoint

asked = partial(request_for, mtp=True)
SHAPES = ("plain", "even", "full_first")


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "out"
    export(asked(checkpoint, out), Recorder())
    return out


def regions(path: Path) -> dict[str, tuple[str, int, int]]:
    """Where each weight of a graph lies: file, offset, length; by its name."""
    found = {}
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        told = {entry.key: entry.value for entry in tensor.external_data}
        if told:
            found[tensor.name] = (told["location"], int(told["offset"]), int(told["length"]))
    return found


def test_the_head_is_a_second_graph_over_the_weights_of_the_text_graph(
    checkpoint: Path, exported: Path
) -> None:
    opened = Bundle.open(exported, check="full")
    manifest = opened.manifest
    assert manifest.graphs == {
        "vision": "vision/model.onnx", "text": "text/model.onnx", "mtp": "text/mtp.onnx",
    }  # fmt: skip
    assert manifest.options["text"]["mtp"] == "head"
    assert sorted(path.name for path in (exported / "text").iterdir()) == [
        "model.bin", "model.onnx", "mtp.onnx",
    ]  # fmt: skip
    assert export(asked(checkpoint, exported), Recorder()).status == "up-to-date"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_embedding_and_head_are_stored_once(tmp_path: Path, shape: str, precision: str) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", shape, with_mtp=True)
    export(asked(folder, tmp_path / "out", precision=precision), Recorder())
    export(asked(folder, tmp_path / "plain", precision=precision, mtp=False), Recorder())
    text, head = (
        regions(Bundle.open(tmp_path / "out").graph_path(name)) for name in ("text", "mtp")
    )
    config = load_config(folder)

    shared = set(head.values()) & set(text.values())
    matrices = [1] if config.text.tied else [1, 1]
    assert len(shared) >= len(matrices) * (1 if precision == "fp32" else 2) + 2
    own = sum(length for _, _, length in set(head.values()) - set(text.values()))
    more = (tmp_path / "out/text/model.bin").stat().st_size
    less = (tmp_path / "plain/text/model.bin").stat().st_size
    assert own <= more - less <= own + 4096 * (len(head) + 1)


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("shape", ["plain", "even"])
def test_a_head_of_frequent_tokens_drafts_what_the_whole_one_does_if_it_may(
    tmp_path: Path, shape: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", shape, with_mtp=True)
    vocabulary = load_config(folder).text.vocab_size
    export(asked(folder, tmp_path / "whole", precision=precision), Recorder())
    monkeypatch.setattr(frequent, "DRAFTS", vocabulary // 2)
    chosen = frequent.frequent_tokens(folder, vocabulary)
    assert chosen is not None
    assert len(chosen) == vocabulary // 2
    planned = export(
        asked(folder, tmp_path / "some", precision=precision, dry_run=True), Recorder()
    )
    made = export(asked(folder, tmp_path / "some", precision=precision), Recorder())
    assert planned.plan == made.plan
    heads = [
        ort.InferenceSession(Bundle.open(tmp_path / name).graph_path("mtp"))
        for name in ("whole", "some")
    ]
    rng, drafts = np.random.default_rng(0), []
    for _ in range(30):
        feeds = _feeds(heads[0], rng)
        whole, some = (int(head.run(["draft"], feeds)[0].item()) for head in heads)
        assert some == whole if whole in chosen else some in chosen
        drafts.append(whole)
    assert 0 < np.isin(drafts, chosen).sum() < len(drafts)


def _feeds(head: ort.InferenceSession, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A pair behind nothing."""
    shapes = {value.name: value.shape for value in head.get_inputs()}
    width = shapes["hidden"][2]
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if "past" in name}
    return feeds | {
        "input_ids": rng.integers(0, 200, (1, 1)),
        "hidden": rng.normal(size=(1, 1, width)).astype(np.float32),
        "attention_mask": (np.arange(shapes["attention_mask"][1]) < 1).astype(np.int32)[None],
        "position_ids": np.zeros((3, 1, 1), np.int64),
        "image_embeds": np.zeros((0, width), np.float32),
    }


def test_the_plan_tells_the_sizes_that_are_written(checkpoint: Path, tmp_path: Path) -> None:
    out, recorder = tmp_path / "out", Recorder()
    planned = export(asked(checkpoint, out, dry_run=True), recorder).plan
    result = export(asked(checkpoint, out), recorder)
    plain = export(asked(checkpoint, tmp_path / "plain", mtp=False), Recorder()).plan
    assert planned is not None
    assert plain is not None
    assert planned == result.plan
    assert not any("ignored" in note for note in recorder.notes)
    for file in planned.files:
        digits = 0.01 if file.path.endswith(".onnx") else 0.0  # those of offsets
        written = (out / file.path).stat().st_size
        assert written == pytest.approx(file.size, rel=digits), file.path
    head = 2 * (384 * 128 // 2 + 384 * 128 // 32 * 4)  # packed a second time, fine codes opened
    more = (out / "text/model.bin").stat().st_size - _size(plain.files, "text/model.bin")
    rotary = 2 * 32 * 8 * 4
    assert planned.memory.weights == plain.memory.weights + more + head + rotary
    assert planned.memory.kv_cache == 2 * plain.memory.kv_cache  # it has one full layer


def _size(files: Any, path: str) -> int:
    return int(next(file.size for file in files if file.path == path))


def test_a_bundle_without_the_head_is_as_it_was(checkpoint: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    export(asked(checkpoint, tmp_path / "out", mtp=False), recorder)
    manifest = Bundle.open(tmp_path / "out").manifest
    text = onnx.load(tmp_path / "out/text/model.onnx", load_external_data=False).graph

    assert "mtp" not in manifest.graphs
    assert "hidden" not in [value.name for value in text.output]
    assert any("--mtp exports them" in note for note in recorder.notes)


@pytest.mark.parametrize(("there", "wanted"), [(True, False), (False, True)])
def test_with_or_without_the_head_is_another_bundle(
    checkpoint: Path, tmp_path: Path, there: bool, wanted: bool
) -> None:
    out = tmp_path / "out"
    export(asked(checkpoint, out, mtp=there), Recorder())
    with pytest.raises(UsageError, match=r"with mtp (head, not none|none, not head);"):
        export(asked(checkpoint, out, mtp=wanted), Recorder())
    export(asked(checkpoint, out, mtp=wanted, force=True), Recorder())
    assert ("mtp" in Bundle.open(out, check="full").manifest.graphs) == wanted


def test_a_bundle_of_before_there_were_heads_has_none(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(asked(checkpoint, out, mtp=False), Recorder())
    manifest = out / "q35chat.json"
    text = manifest.read_text().replace(',\n      "mtp": "none"', "")
    manifest.write_text(text)
    assert "mtp" not in Bundle.open(out).manifest.options["text"]

    assert export(asked(checkpoint, out, mtp=False), Recorder()).status == "up-to-date"
    with pytest.raises(UsageError, match="with mtp none, not head;"):
        export(asked(checkpoint, out), Recorder())


def test_exporting_vision_again_keeps_the_head(checkpoint: Path, bundle: Path) -> None:
    request = asked(checkpoint, bundle, component="vision", mtp=False, force=True)
    result = export(request, Recorder())
    assert result.plan is not None
    assert "text/mtp.onnx" in {file.path for file in result.plan.kept}
    assert Bundle.open(bundle, check="full").manifest.graphs["mtp"] == "text/mtp.onnx"


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_the_memory_of_a_head_that_is_kept_is_counted(
    checkpoint: Path, tmp_path: Path, precision: str
) -> None:
    out = tmp_path / "out"
    whole = export(asked(checkpoint, out, precision=precision), Recorder()).plan
    vision = asked(
        checkpoint, out, precision=precision, component="vision", mtp=False, force=True,
        dry_run=True,
    )  # fmt: skip
    kept = export(vision, Recorder()).plan
    assert whole is not None
    assert kept is not None
    assert kept.memory == whole.memory


def test_the_memory_of_a_head_that_is_dropped_is_not_counted(
    checkpoint: Path, bundle: Path, tmp_path: Path
) -> None:
    plain = export(asked(checkpoint, tmp_path / "new", mtp=False, dry_run=True), Recorder()).plan
    text = asked(checkpoint, bundle, component="text", mtp=False, force=True, dry_run=True)
    again = export(text, Recorder()).plan
    assert plain is not None
    assert again is not None
    assert again.memory == plain.memory


def test_exporting_text_again_without_the_head_drops_it(checkpoint: Path, bundle: Path) -> None:
    export(asked(checkpoint, bundle, component="text", mtp=False, force=True), Recorder())
    manifest = Bundle.open(bundle, check="full").manifest
    assert set(manifest.graphs) == {"vision", "text"}
    assert not (bundle / "text/mtp.onnx").exists()


def test_a_head_is_for_the_cpu_and_for_text() -> None:
    with pytest.raises(UsageError, match="--mtp belongs to the text component"):
        ExportRequest(mtp=True, component="vision")
    with pytest.raises(UsageError, match="--mtp is for --target cpu, found ascend-310p"):
        export(ExportRequest(mtp=True, target="ascend-310p"), Recorder())


def test_a_checkpoint_without_a_head_is_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint", "plain")
    message = r"no head for drafts \(mtp_num_hidden_layers is 0, 0 mtp.* export without --mtp"
    with pytest.raises(CheckpointError, match=message):
        export(asked(folder, tmp_path / "out"), Recorder())
    assert not (tmp_path / "out").exists()


def test_a_head_that_fine_tuning_dropped_is_refused(own_checkpoint: Path, tmp_path: Path) -> None:
    path = own_checkpoint / "model.safetensors"
    tensors = load_file(path)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("mtp.")}
    save_file(kept, path)
    with pytest.raises(CheckpointError, match=r"is 1, 0 mtp\.\* tensors"):
        export(asked(own_checkpoint, tmp_path / "out"), Recorder())


@pytest.mark.parametrize("name", ["mtp.fc.weight", "mtp.layers.0.self_attn.k_norm.weight"])
def test_a_tensor_missing_from_the_head_is_named(
    own_checkpoint: Path, tmp_path: Path, name: str
) -> None:
    path = own_checkpoint / "model.safetensors"
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"lacks the tensor {name}"):
        export(asked(own_checkpoint, tmp_path / "out"), Recorder())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mtp_num_hidden_layers", 2, "of 2 layers; only one layer"),
        ("mtp_use_dedicated_embeddings", True, "with its own embeddings; only one layer"),
    ],
)
def test_heads_of_another_kind_are_refused(
    own_checkpoint: Path, tmp_path: Path, key: str, value: object, message: str
) -> None:
    path = own_checkpoint / "config.json"
    config = json.loads(path.read_text())
    config["text_config"][key] = value
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        export(asked(own_checkpoint, tmp_path / "out"), Recorder())


def test_the_comparison_leaves_the_head_aside(checkpoint: Path, bundle: Path) -> None:
    before = sorted(bundle.rglob("*"))
    opened = Bundle.open(bundle)
    with exact_copy(opened) as copy:
        assert copy.graph_path("text") != opened.graph_path("text")
        assert onnx.load(copy.graph_path("text"), load_external_data=False).graph.node
    assert sorted(bundle.rglob("*")) == before
    assert not any(
        name.startswith("mtp.") for name, _ in stored_weights(opened, load_config(checkpoint))
    )
