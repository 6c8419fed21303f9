"""Files that nobody listed must not take part in what a bundle does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from q35chat.bundle.bundle import MANIFEST_NAME, Bundle, Depth, is_bundle
from q35chat.diagnosis.bundle import bundle as checks_of
from q35chat.errors import BundleError
from tests.export.bundles import write_sample_bundle

READ = [
    "chat_template.jinja",
    "additional_chat_templates/default.jinja",
    "special_tokens_map.json",
    "generation_config.json",
    "merges.txt",
    "tokenizer.model",
]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_sample_bundle(tmp_path / "bundle")


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
