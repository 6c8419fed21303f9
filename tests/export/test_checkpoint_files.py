from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from q35chat.errors import CheckpointError
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.request import ExportRequest
from q35export.safetensors_files import weight_files
from q35export.source import resolve
from tests.support.checkpoints import make_checkpoint

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def raw_safetensors(path: Path, header: object, data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def entry(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_a_missing_folder_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder: give the folder"):
        Checkpoint.open(tmp_path / "absent")


def test_an_empty_folder_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is empty: give the folder"):
        Checkpoint.open(tmp_path)


def test_an_index_whose_shards_are_not_all_there_is_half_downloaded(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "plain", shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"half-downloaded: 1 of 3 .*00002-of-00003"):
        Checkpoint.open(tmp_path)


def test_numbered_shards_are_counted_where_the_index_is_missing_too(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "plain", shards=3)
    (tmp_path / INDEX).unlink()
    assert len(weight_files(tmp_path)) == 3
    (tmp_path / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match="half-downloaded: 1 of 3"):
        Checkpoint.open(tmp_path)


def test_files_the_downloader_left_unfinished_are_counted(tmp_path: Path) -> None:
    cache = tmp_path / ".cache" / "huggingface" / "download"
    cache.mkdir(parents=True)
    (cache / "abc.incomplete").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"half-downloaded: 1 \.incomplete"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [("model.gguf", "GGUF"), ("pytorch_model.bin", r"\.bin weights"), ("a.txt", "no safetensors")],
)
def test_other_weight_formats_are_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(tmp_path)


def test_an_adapter_is_named_with_its_model(tmp_path: Path) -> None:
    base = {"base_model_name_or_path": "Qwen/Qwen3.5-4B"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(base))
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"is a LoRA adapter of 'Qwen/Qwen3\.5-4B': merge it into its model"
    ):
        load_config(tmp_path)


@pytest.mark.parametrize("name", ["model-Q4_K_M.gguf", "README.md"])
def test_what_is_no_checkpoint_is_named_before_its_configuration_is_asked_for(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"GGUF")
    wanted = "holds GGUF weights; export reads the safetensors of the original checkpoint"
    wanted = wanted if name.endswith(".gguf") else "holds no config.json: give the folder"
    with pytest.raises(CheckpointError, match=wanted):
        load_config(tmp_path)


def test_a_gguf_file_is_named_with_the_way_on(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    request = ExportRequest(str(tmp_path / "a.gguf"))
    with pytest.raises(CheckpointError, match=r"a\.gguf is a GGUF file; export reads the safet"):
        resolve(request, lambda _: None)


@pytest.mark.parametrize("place", ["../x.safetensors", "/x.safetensors", "a/b.safetensors"])
def test_an_index_that_points_outside_its_folder_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": place}}))
    with pytest.raises(CheckpointError, match="instead of files beside it"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "[" * 20_000, '{"weight_map": []}', '{"weight_map": {}}']
)
def test_a_damaged_index_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match=f"{INDEX}.*download it again"):
        Checkpoint.open(tmp_path)


def test_a_single_file_wins_over_an_index(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "plain", shards=2)
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / SINGLE)
    assert weight_files(tmp_path) == (tmp_path / SINGLE,)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_truncated_file_is_named_with_both_sizes(tmp_path: Path, share: float) -> None:
    make_checkpoint(tmp_path, "plain")
    data = (tmp_path / SINGLE).read_bytes()
    (tmp_path / SINGLE).write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"truncated: it has [\d,]+ bytes, .* [\d,]+; down"):
        Checkpoint.open(tmp_path)


def test_bytes_after_the_last_tensor_are_damage(tmp_path: Path) -> None:
    raw_safetensors(tmp_path / SINGLE, entry(), bytes(5))
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("data", [b"", b"1234567", bytes(64), b"\xff" * 64, b"\x02" + bytes(9)])
def test_what_is_not_safetensors_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SINGLE).write_bytes(data)
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        Checkpoint.open(tmp_path)


def test_a_header_that_is_nested_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes((20_000).to_bytes(8, "little") + b"[" * 20_000)
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        Checkpoint.open(tmp_path)


def test_a_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (entry(shape=(2,)), "does not fit F32"),
        (entry(offsets=(4, 0)), "does not fit"),
        (entry(offsets=(-4, 0)), "does not fit"),
        (entry(shape=(-1,)), "does not fit"),
        (entry(shape=None), "is damaged"),
        (entry(shape=(float("inf"),)), "is damaged"),
        (entry(shape=(10**400,)), "is damaged"),
        (entry(shape="11"), "is damaged"),
        (entry(shape=(1,) * 100_000), "is damaged"),
        (entry(offsets=(0, 10**400)), "is damaged"),
        (entry(offsets=(0, float("nan"))), "is damaged"),
        (entry(offsets=(0,)), "is damaged"),
        ({"x": 1}, "is damaged"),
        ({"x": {}}, "is damaged"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: object, message: str) -> None:
    raw_safetensors(tmp_path / SINGLE, header, bytes(4))
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.open(tmp_path)


def test_a_scalar_reads_as_a_scalar(tmp_path: Path) -> None:
    save_file({"x": np.array(2.5, np.float32)}, tmp_path / SINGLE)
    value = Checkpoint.open(tmp_path).read("x")
    assert (value.shape, value.item()) == ((), 2.5)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    raw_safetensors(tmp_path / SINGLE, entry(), bytes(4))
    checkpoint = Checkpoint.open(tmp_path)
    with (tmp_path / SINGLE).open("r+b") as file:
        file.truncate((tmp_path / SINGLE).stat().st_size - 2)
    with pytest.raises(CheckpointError, match="became shorter"):
        checkpoint.read("x")
