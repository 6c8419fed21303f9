from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file

from q35chat.errors import CheckpointError
from q35export.checkpoint import Checkpoint, canonical_name
from q35export.config import ModelConfig, load_config
from q35export.inventory import expected_tensors
from tests.support.checkpoints import make_checkpoint
from tests.support.variants import rename_tensors

BOTH = ("text", "vision")
CONV = "model.language_model.layers.0.linear_attn.conv1d.weight"
EMBEDDING = "model.language_model.embed_tokens.weight"


def load(folder: Path) -> tuple[Checkpoint, ModelConfig]:
    return Checkpoint.open(folder), load_config(folder)


def change(folder: Path, **tensors: npt.NDArray[Any] | None) -> None:
    """Rewrite a single-file checkpoint with some tensors replaced, or removed by None."""
    path = folder / "model.safetensors"
    kept = load_file(path) | {name: array for name, array in tensors.items() if array is not None}
    save_file({name: kept[name] for name in kept if tensors.get(name, ...) is not None}, path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "checkpoint", "plain", seed=1)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_tensor_reads_as_the_safetensors_package_reads_it(
    tmp_path: Path, dtype: str, shards: int
) -> None:
    folder = make_checkpoint(tmp_path, "plain", seed=1, dtype=dtype, shards=shards)
    checkpoint, config = load(folder)
    wanted: dict[str, npt.NDArray[Any]] = {}
    for path in folder.glob("*.safetensors"):
        wanted |= load_file(path)
    for name in (*expected_tensors(config, "text"), *expected_tensors(config, "vision")):
        got = checkpoint.read(name)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, wanted[name].astype(np.float32))


def test_rows_are_the_slice_of_the_whole(folder: Path) -> None:
    checkpoint, _ = load(folder)
    whole = checkpoint.read(CONV)
    for start, stop in [(0, 1), (3, 17), (5, 5), (whole.shape[0] - 1, whole.shape[0])]:
        np.testing.assert_array_equal(checkpoint.rows(CONV, start, stop), whole[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 10**6)])
def test_rows_outside_the_tensor_are_an_error(folder: Path, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="rows"):
        Checkpoint.open(folder).rows(CONV, start, stop)


def test_rows_of_a_huge_tensor_cost_only_their_own_memory(tmp_path: Path) -> None:
    rows, width = 1 << 18, 1 << 10
    entry = {"dtype": "BF16", "shape": [rows, width], "data_offsets": [0, rows * width * 2]}
    header = json.dumps({"huge": entry}).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + rows * width * 2)
    checkpoint = Checkpoint.open(tmp_path)
    tracemalloc.start()
    checkpoint.rows("huge", rows - 64, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * width * 16


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "model.",
        "language_model.",
        "model.language_model.",
        "language_model.model.",
        "model.language_model.language_model.language_model.",
        "base_model.model.",
        "base_model.model.model.language_model.",
        "module.",
        "module.model.language_model.",
        "_orig_mod.",
        "_orig_mod.model.language_model.",
        "model._orig_mod.language_model._orig_mod.",
        "_fsdp_wrapped_module.model.language_model._fsdp_wrapped_module.",
    ],
)
@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("layers.0.mlp.up_proj.weight", "model.language_model.layers.0.mlp.up_proj.weight"),
        ("embed_tokens.weight", EMBEDDING),
        ("norm.weight", "model.language_model.norm.weight"),
        ("visual.pos_embed.weight", "model.visual.pos_embed.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("mtp.fc.weight", "mtp.fc.weight"),
    ],
)
def test_prefixes_of_savers_and_wrappers_map_to_one_name(
    prefix: str, name: str, canonical: str
) -> None:
    assert canonical_name(prefix + name) == canonical


@pytest.mark.parametrize("name", ["vision_tower.patch_embed.proj.weight", "model", "extra", ""])
def test_names_of_nothing_known_stay_as_they_are(name: str) -> None:
    assert canonical_name(name) == name


def test_a_checkpoint_with_repeated_prefixes_is_whole(folder: Path) -> None:
    def repeated(name: str) -> str:
        wrapped = name.replace("model.language_model.", f"model.{'language_model.' * 3}")
        return wrapped.replace("model.visual.", "model.language_model.visual.")

    rename_tensors(folder, repeated)
    checkpoint, config = load(folder)
    assert checkpoint.fit(config) == (config, ())
    assert checkpoint.check(config, BOTH) == ()


def test_two_tensors_of_one_name_are_refused(folder: Path) -> None:
    change(folder, **{f"module.{CONV}": np.zeros((256, 1, 4), np.float32)})
    with pytest.raises(CheckpointError, match=rf"{CONV} twice, as {CONV} and as module\.{CONV}"):
        load(folder)


def test_names_of_another_program_are_shown_beside_those_that_are_missing(folder: Path) -> None:
    rename_tensors(folder, lambda name: name.replace("model.visual.", "vision_tower."))
    checkpoint, config = load(folder)
    assert checkpoint.fit(config) == (config, ())
    with pytest.raises(
        CheckpointError,
        match=r"the tensor (model\.visual)\.(\S+) and has vision_tower\.\2, a name of another",
    ) as error:
        checkpoint.check(config, BOTH)
    assert "download" not in str(error.value)


def head_of(folder: Path) -> np.ndarray:
    head: np.ndarray = load_file(folder / "model.safetensors")[EMBEDDING].copy()
    return head


def test_a_tied_head_that_differs_is_used_with_a_word(folder: Path) -> None:
    head = head_of(folder)
    head[-1, -1] += 1
    change(folder, **{"lm_head.weight": head})
    checkpoint, config = load(folder)
    fitted, (remark,) = checkpoint.fit(config)
    assert config.text.tied
    assert not fitted.text.tied
    assert "lm_head.weight differs from the embedding, although config.json has tie_word" in remark
    assert checkpoint.check(fitted, BOTH) == ()


def test_a_head_that_equals_the_tied_embedding_needs_no_word(folder: Path) -> None:
    change(folder, **{"lm_head.weight": head_of(folder)})
    checkpoint, config = load(folder)
    assert checkpoint.fit(config) == (config, ())
    assert checkpoint.check(config, BOTH) == ()


def test_a_tied_head_stands_for_an_embedding_that_is_missing(folder: Path) -> None:
    head = head_of(folder)
    change(folder, **{"lm_head.weight": head, EMBEDDING: None})
    checkpoint, config = load(folder)
    assert checkpoint.fit(config) == (config, ())
    np.testing.assert_array_equal(checkpoint.read(EMBEDDING), head)


def test_an_untied_model_without_a_head_says_what_contradicts_what(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "even", seed=1)
    change(folder, **{"lm_head.weight": None})
    checkpoint, config = load(folder)
    with pytest.raises(
        CheckpointError, match=r"tie_word_embeddings false, and .* has no lm_head\.weight"
    ):
        checkpoint.fit(config)


@pytest.mark.parametrize("shape", ["plain", "even", "full_first", "narrow_key", "mostly_linear"])
def test_a_whole_checkpoint_passes_without_remarks(tmp_path: Path, shape: str) -> None:
    checkpoint, config = load(make_checkpoint(tmp_path, shape, seed=1))
    assert checkpoint.check(config, BOTH) == ()


def test_mtp_weights_are_ignored_with_one_line(tmp_path: Path) -> None:
    checkpoint, config = load(make_checkpoint(tmp_path, "plain", seed=1, with_mtp=True))
    (remark,) = checkpoint.check(config, BOTH)
    assert remark.startswith("ignored 15 multi-token-prediction (mtp.*)")


def test_other_tensors_are_ignored_with_one_line(folder: Path) -> None:
    change(folder, extra=np.zeros(3, np.float32), lm_head=np.zeros(3, np.float32))
    checkpoint, config = load(folder)
    (remark,) = checkpoint.check(config, BOTH)
    assert "2 tensors the model does not have: extra" in remark


def test_a_missing_tensor_is_named(folder: Path) -> None:
    change(folder, **{CONV: None})
    checkpoint, config = load(folder)
    with pytest.raises(CheckpointError, match=f"lacks the tensor {CONV}") as error:
        checkpoint.check(config, BOTH)
    assert "download" not in str(error.value)


def test_a_missing_vision_tower_matters_only_where_it_is_exported(folder: Path) -> None:
    change(folder, **{"model.visual.pos_embed.weight": None})
    checkpoint, config = load(folder)
    assert checkpoint.check(config, ("text",)) == ()
    with pytest.raises(CheckpointError, match="pos_embed"):
        checkpoint.check(config, ("vision",))


def test_a_wrong_shape_is_named_with_both_shapes(folder: Path) -> None:
    change(folder, **{EMBEDDING: np.zeros((380, 128), np.float32)})
    checkpoint, config = load(folder)
    with pytest.raises(CheckpointError, match=r"\[380, 128\].*\[384, 128\]"):
        checkpoint.check(config, BOTH)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_where_they_are_read(
    folder: Path, value: float
) -> None:
    weights = load_file(folder / "model.safetensors")[EMBEDDING].copy()
    weights[7, 3] = value
    change(folder, **{EMBEDDING: weights})
    checkpoint, config = load(folder)
    assert checkpoint.check(config, BOTH) == ()
    assert checkpoint.rows(EMBEDDING, 0, 7).shape == (7, 128)
    with pytest.raises(CheckpointError, match=f"{EMBEDDING} holds NaN or infinite"):
        checkpoint.rows(EMBEDDING, 7, 8)
    with pytest.raises(CheckpointError, match="holds NaN or infinite"):
        checkpoint.read(EMBEDDING)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, np.int8, np.float64])
def test_an_element_type_that_is_no_float_of_16_or_32_bits_is_refused(
    folder: Path, dtype: Any
) -> None:
    change(folder, **{EMBEDDING: np.zeros((384, 128), dtype)})
    checkpoint, config = load(folder)
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight is stored as .*bf16, fp16"):
        checkpoint.check(config, BOTH)


@pytest.mark.parametrize("method", ["fp8", "gptq", "awq"])
def test_a_quantised_checkpoint_is_refused_by_its_config(folder: Path, method: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=rf"quantised checkpoint \({method}\).*original"):
        Checkpoint.open(folder)


def test_a_checkpoint_quantised_for_mlx_is_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": 64, "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"quantised checkpoint \(MLX\).*original"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("name", ["q_proj.lora_A.weight", "q_proj.base_layer.weight"])
def test_an_adapter_that_is_not_merged_is_named(folder: Path, name: str) -> None:
    whole = f"base_model.model.model.language_model.layers.3.self_attn.{name}"
    change(folder, **{whole: np.zeros((2, 2), np.float32)})
    with pytest.raises(CheckpointError, match=r"holds a LoRA adapter .*merge it into its model"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("suffix", ["qweight", "weight_scale_inv", "weight_packed", "scales"])
def test_a_quantised_checkpoint_is_refused_by_its_tensors(folder: Path, suffix: str) -> None:
    name = f"model.language_model.layers.0.mlp.up_proj.{suffix}"
    change(folder, **{name: np.zeros(4, np.float32)})
    with pytest.raises(CheckpointError, match=f"quantised checkpoint .*{suffix}"):
        Checkpoint.open(folder)


@pytest.mark.parity
@pytest.mark.parametrize("shape", ["plain", "even", "narrow_key"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_table_of_tensors_is_that_of_transformers(
    tmp_path: Path, shape: str, bias: bool
) -> None:
    import torch  # noqa: PLC0415
    from transformers import AutoConfig, Qwen3_5ForConditionalGeneration  # noqa: PLC0415

    folder = make_checkpoint(tmp_path, shape, seed=1)
    raw = json.loads((folder / "config.json").read_text())
    raw["text_config"]["attention_bias"] = bias
    (folder / "config.json").write_text(json.dumps(raw))
    with torch.device("meta"):
        model = Qwen3_5ForConditionalGeneration(AutoConfig.from_pretrained(folder))
    state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    config = load_config(folder)
    if config.text.tied:
        del state["lm_head.weight"]
    assert {**expected_tensors(config, "text"), **expected_tensors(config, "vision")} == state
