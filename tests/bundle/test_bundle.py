from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from q35chat.bundle import bundle as bundles
from q35chat.bundle.bundle import MANIFEST_NAME, Bundle, Depth, is_bundle
from q35chat.bundle.foreign import open_bundle
from q35chat.diagnosis.bundle import bundle as checks_of
from q35chat.errors import BundleError
from tests.export.bundles import sample_manifest, write_sample_bundle
from tests.support.imports import ROOT


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_sample_bundle(tmp_path / "bundle")


def list_file(bundle: Path, name: str, size: int = 1) -> None:
    data = json.loads((bundle / MANIFEST_NAME).read_text())
    data["files"][name] = {"size": size, "sha256": "0" * 64}
    (bundle / MANIFEST_NAME).write_text(json.dumps(data))


def test_a_whole_bundle_opens_and_says_where_its_parts_are(bundle: Path) -> None:
    opened = Bundle.open(bundle, check="full")
    assert opened.manifest == sample_manifest()
    assert opened.graph_path("text") == bundle / "text" / "model.onnx"
    assert opened.processor_dir == bundle / "processor"


def test_a_moved_bundle_opens(bundle: Path, tmp_path: Path) -> None:
    moved = shutil.move(bundle, tmp_path / "elsewhere")
    assert Bundle.open(Path(moved), check="full").graph_path("text").is_file()


def test_a_graph_that_was_not_exported_names_the_command_that_adds_it(bundle: Path) -> None:
    with pytest.raises(BundleError, match=r"no vision graph \(it has: text\).*--component vision"):
        Bundle.open(bundle).graph_path("vision")


@pytest.mark.parametrize(
    ("size", "wrong"),
    [
        (None, "is missing: .* lists 256 bytes"),
        (200, "is truncated.* 200 bytes.* 256;"),
        (300, "is altered.* 300 bytes.* 256;"),
    ],
)
def test_a_file_of_another_size_is_named_with_both_sizes(
    bundle: Path, size: int | None, wrong: str
) -> None:
    (bundle / "text/model.bin").unlink()
    if size is not None:
        (bundle / "text/model.bin").write_bytes(bytes(size))
    with pytest.raises(BundleError, match=rf"text/model\.bin {wrong}.*--force"):
        Bundle.open(bundle)


def test_altered_bytes_of_the_same_size_are_seen_by_the_full_check_only(bundle: Path) -> None:
    (bundle / "text/model.bin").write_bytes(bytes(256))
    opened = Bundle.open(bundle, check="sizes")
    with pytest.raises(BundleError, match=r"model.bin was altered: its 256 bytes.*--force"):
        opened.check("full")
    with pytest.raises(BundleError, match="altered"):
        Bundle.open(bundle, check="full")


def test_altered_bytes_of_a_small_file_are_seen_when_a_model_is_opened(bundle: Path) -> None:
    (bundle / "text/model.onnx").write_bytes(b"other data")
    with pytest.raises(BundleError, match=r"text/model.onnx was altered.*--force"):
        open_bundle(bundle)


def test_large_files_are_not_read_when_a_model_is_opened(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "SMALL_BYTES", 255)
    (bundle / "text/model.bin").write_bytes(bytes(256))
    opened = open_bundle(bundle)
    read: list[str] = []
    assert list(opened.damages("small", tell=lambda name, _: read.append(name))) == []
    assert sorted(read) == ["processor/tokenizer.json", "text/model.onnx"]


def test_all_damaged_files_are_listed_in_one_check(bundle: Path) -> None:
    (bundle / "text/model.bin").write_bytes(bytes(256))
    (bundle / "text/model.onnx").unlink()
    found = list(Bundle.open(bundle, check="names").damages("full"))
    assert [damage.name for damage in found] == ["text/model.bin", "text/model.onnx"]


def test_damage_names_the_model_and_the_folder_of_the_bundle(tmp_path: Path) -> None:
    spaced = write_sample_bundle(tmp_path / "my bundle")
    (spaced / "text/model.bin").write_bytes(bytes(200))
    with pytest.raises(BundleError) as error:
        Bundle.open(spaced)
    command = (
        "q35chat export Qwen/Qwen3.5-0.8B --precision int4 --block-size 32 --no-calibrate "
        "--max-seq-len 64"
    )
    assert str(error.value).endswith(f"; run `{command} --out '{spaced}' --force`")


def test_a_checkpoint_in_place_of_a_bundle_is_recognised_and_can_be_exported(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(b"{}")
    with pytest.raises(BundleError, match=r"is a checkpoint, not a bundle") as error:
        Bundle.open(folder)
    assert f"`q35chat export '{folder}' --out out`" in str(error.value)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "text/../../secret", "", ".", "text//model.bin", "a\\b"]
)
def test_a_listed_name_that_could_leave_the_folder_is_refused(bundle: Path, name: str) -> None:
    (bundle.parent / "secret").write_bytes(b"x")
    list_file(bundle, name)
    with pytest.raises(BundleError, match="not a plain path inside the bundle"):
        Bundle.open(bundle)


def test_a_link_that_leaves_the_folder_is_refused(bundle: Path) -> None:
    outside = bundle.parent / "outside.bin"
    outside.write_bytes((bundle / "text/model.bin").read_bytes())
    (bundle / "text/model.bin").unlink()
    (bundle / "text/model.bin").symlink_to(outside)
    with pytest.raises(BundleError, match=r"leaves the bundle.*outside\.bin"):
        Bundle.open(bundle)


def test_a_linked_folder_that_leaves_the_bundle_is_refused(bundle: Path) -> None:
    shutil.move(bundle / "text", bundle.parent / "outside")
    (bundle / "text").symlink_to(bundle.parent / "outside")
    with pytest.raises(BundleError, match="leaves the bundle"):
        Bundle.open(bundle)


def test_a_bundle_reached_through_a_link_opens(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    assert Bundle.open(tmp_path / "link").manifest == sample_manifest()


def test_a_graph_that_is_not_a_listed_file_is_refused(bundle: Path) -> None:
    data = json.loads((bundle / MANIFEST_NAME).read_text())
    data["graphs"]["text"] = "text/other.onnx"
    (bundle / MANIFEST_NAME).write_text(json.dumps(data))
    with pytest.raises(BundleError, match=r"'text/other.onnx' is not among the listed files"):
        Bundle.open(bundle)


def test_what_is_no_bundle_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BundleError, match="does not exist; name the folder of an exported bundle"):
        Bundle.open(tmp_path / "absent")
    with pytest.raises(BundleError, match="is not a folder; name the folder of an exported bundle"):
        Bundle.open(tmp_path / "file")
    with pytest.raises(
        BundleError, match=r"has no q35chat.json; name the folder of an exported bundle"
    ):
        Bundle.open(tmp_path)


def test_only_a_folder_with_a_manifest_is_a_bundle(bundle: Path, tmp_path: Path) -> None:
    assert is_bundle(bundle)
    assert not is_bundle(tmp_path)
    assert not is_bundle(tmp_path / "absent")


def test_reading_a_manifest_loads_no_library(bundle: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from q35chat.bundle.bundle import Bundle; "
        f"Bundle.open(Path({str(bundle)!r})); "
        "print({'numpy', 'onnx_ir', 'onnxruntime', 'rich'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


READ = [
    "chat_template.jinja",
    "additional_chat_templates/default.jinja",
    "special_tokens_map.json",
    "generation_config.json",
    "merges.txt",
    "tokenizer.model",
]


def put(bundle: Path, name: str) -> None:
    path = bundle / "processor" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{{ raise_exception('unlisted') }}")


@pytest.mark.parametrize("depth", ["sizes", "small", "full"])
@pytest.mark.parametrize("name", READ)
def test_a_file_that_is_not_listed_and_would_be_read_is_damage(
    bundle: Path, name: str, depth: Depth
) -> None:
    put(bundle, name)
    with pytest.raises(BundleError, match=rf"{name} is not in the manifest.*delete it: rm /"):
        Bundle.open(bundle, check=depth)
    (damage,) = Bundle.open(bundle, check="names").damages("full")
    assert damage.name == f"processor/{name}"


@pytest.mark.parametrize("name", ["notes.md", ".DS_Store", "._tokenizer.json", ".idea/a.json"])
def test_what_no_reader_looks_at_may_lie_there(bundle: Path, name: str) -> None:
    put(bundle, name)
    assert Bundle.open(bundle, check="full")


def test_a_linked_folder_of_templates_is_damage(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (bundle / "processor/additional_chat_templates").symlink_to(tmp_path / "templates")
    with pytest.raises(BundleError, match="additional_chat_templates is not in the manifest"):
        Bundle.open(bundle)


@pytest.mark.parametrize("at", ["processor/tokenizer.json", "processor"])
def test_a_link_to_itself_in_place_of_a_file_is_missing(bundle: Path, at: str) -> None:
    place = bundle / at
    place.rename(bundle / "moved")
    place.symlink_to(place)
    with pytest.raises(BundleError, match=r"tokenizer\.json is missing"):
        Bundle.open(bundle)


@pytest.mark.parametrize("content", ["[" * 20_000, '{"schema": ' + "9" * 5000 + "}"])
def test_a_manifest_that_cannot_be_parsed_is_one_line(bundle: Path, content: str) -> None:
    (bundle / MANIFEST_NAME).write_text(content)
    with pytest.raises(BundleError, match=r"q35chat\.json is not valid JSON \(") as error:
        Bundle.open(bundle)
    assert "\n" not in str(error.value)


def test_a_pipe_in_place_of_the_manifest_is_no_manifest(bundle: Path) -> None:
    (bundle / MANIFEST_NAME).unlink()
    os.mkfifo(bundle / MANIFEST_NAME)
    with pytest.raises(BundleError, match="is not a bundle"):
        Bundle.open(bundle)


@pytest.mark.parametrize("name", ["n" * 999, "a\0b"])
def test_a_name_that_no_folder_can_have_is_no_bundle(tmp_path: Path, name: str) -> None:
    assert not is_bundle(tmp_path / name)
    with pytest.raises(BundleError, match="does not exist"):
        Bundle.open(tmp_path / name)


def test_doctor_names_the_file_and_what_to_do(bundle: Path) -> None:
    put(bundle, "additional_chat_templates/default.jinja")
    found = [check for check in checks_of(bundle, []) if check.status == "damaged"]
    assert [check.name for check in found] == ["file", "files"]
    assert "additional_chat_templates/default.jinja is not in the manifest" in found[0].found
    assert found[0].advice.startswith("delete it: rm /")
