"""Which files of a checkpoint a bundle carries: its own, of a size that makes sense."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.bundle.demo import demo_checkpoint
from q35chat.errors import BundleError, CheckpointError, UsageError
from q35export import processor
from q35export.output_state import place_of
from q35export.request import ExportRequest
from q35export.source import resolve
from tests.export.bundles import write_sample_bundle


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo_checkpoint(), tmp_path / "checkpoint"))


@pytest.mark.parametrize("name", ["merges.txt", "tokenizer.json"])
def test_a_link_out_of_the_checkpoint_is_refused_by_name(
    copy: Path, tmp_path: Path, name: str
) -> None:
    private = tmp_path / "id_rsa"
    shutil.copy(copy / "tokenizer.json", private)
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(private)
    with pytest.raises(CheckpointError, match=rf"{name} is a link to {private}, outside"):
        processor._read(copy / name)


def test_a_link_inside_the_checkpoint_or_into_the_cache_of_a_hub_is_followed(
    copy: Path, tmp_path: Path
) -> None:
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "r"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in copy.iterdir():
        if file.is_file():
            shutil.copy(file, blobs / file.name)
            (snapshot / file.name).symlink_to(Path("../../blobs", file.name))
    (copy / "vocab.json").symlink_to("tokenizer.json")
    assert processor._read(copy / "vocab.json") == processor._read(copy / "tokenizer.json")
    assert processor._read(snapshot / "tokenizer.json") == processor._read(copy / "vocab.json")


def test_a_file_of_a_size_that_makes_no_sense_is_refused_before_it_is_read(copy: Path) -> None:
    os.truncate(copy / "tokenizer.json", processor._MOST_BYTES + 1)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json has 256\.0 MiB, more than"):
        processor._read(copy / "tokenizer.json")


def test_folder_names_that_are_not_utf8(copy: Path, tmp_path: Path) -> None:
    renamed = copy.rename(os.fsdecode(os.fsencode(tmp_path) + b"/check\xff"))
    request = ExportRequest(model=str(renamed), out=tmp_path / "out")
    assert resolve(request, lambda _: None).source.name == "check\ufffd"
    with pytest.raises(UsageError, match="is not UTF-8"):
        place_of(renamed)
    bundle = write_sample_bundle(tmp_path / "bundle").rename(f"{renamed}-bundle")
    with pytest.raises(BundleError, match=r"not UTF-8; rename it$"):
        Bundle.open(bundle)
