"""The bundles that a user has, by their names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from q35chat import cli
from q35chat.bundle.bundle import MANIFEST_NAME
from q35chat.bundle.library import add, installed, models_folder, remove
from q35chat.commands.export_process import ChildExporter
from q35chat.commands.model import ModelChoice, choose_model
from q35chat.commands.next_command import chat_command
from q35chat.errors import BundleError, UsageError
from q35chat.settings import Settings, change_settings, load_settings, settings_path
from q35chat.tui.exporting import MadeBundle
from tests.export.bundles import sample_manifest


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


def bundle(folder: Path) -> Path:
    """A folder with a manifest, which is all that a list reads."""
    folder.mkdir(parents=True)
    (folder / MANIFEST_NAME).write_text(sample_manifest().to_json(), "utf-8")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["models", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def _no_demo() -> Path:
    raise AssertionError("the demo was made")


def test_models_are_listed_by_name_with_what_is_known_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle(Path("out"))
    bundle(models_folder() / "small")
    (models_folder() / "no bundle").mkdir()
    bundle(models_folder() / "broken")
    (models_folder() / "broken" / MANIFEST_NAME).write_text("{", "utf-8")
    code, out, _ = run(capsys, "list")
    assert code == 0
    rows = out.splitlines()
    assert [row.split()[0] for row in rows] == ["*", "small"]
    assert sample_manifest().source.name in rows[1]
    _, listed, _ = run(capsys, "list", "--json")
    assert [(row["name"], row["used"]) for row in json.loads(listed)] == [
        ("out", True), ("small", False),
    ]  # fmt: skip


def test_a_manifest_that_is_a_pipe_or_endless_keeps_no_list_waiting() -> None:
    bundle(models_folder() / "small")
    for name in ("pipe", "endless"):
        (models_folder() / name).mkdir()
    os.mkfifo(models_folder() / "pipe" / MANIFEST_NAME)
    with (models_folder() / "endless" / MANIFEST_NAME).open("wb") as file:
        file.truncate(3 << 30)
    assert [it.name for it in installed()] == ["small"]


def test_a_model_is_used_by_its_name_where_no_folder_has_it() -> None:
    place = bundle(models_folder() / "small")
    assert choose_model(Path("small"), Settings(), _no_demo) == ModelChoice(place)
    assert choose_model(None, Settings(model_dir="small"), _no_demo) == ModelChoice(place)
    bundle(Path("small"))
    assert choose_model(Path("small"), Settings(), _no_demo) == ModelChoice(Path("small"))
    assert choose_model(Path("other"), Settings(), _no_demo) == ModelChoice(Path("other"))


def test_a_bundle_that_is_being_exported_is_no_model_yet() -> None:
    bundle(models_folder() / ".small.partial")
    assert installed() == []


def test_the_command_that_opens_a_model_has_its_name_unless_a_folder_here_has_it() -> None:
    place = bundle(models_folder() / "small")
    assert chat_command(place) == "q35chat --model-dir small"
    bundle(Path("small"))
    assert chat_command(place) == f"q35chat --model-dir {place}"


def test_the_screen_is_given_a_bundle_by_its_folder_or_its_name() -> None:
    place = bundle(models_folder() / "small")
    exporter = ChildExporter()
    made = MadeBundle(sample_manifest().source.name, place, 0, "q35chat --model-dir small")
    assert exporter.bundle("small") == exporter.bundle(str(place)) == made
    assert exporter.bundle("Qwen/Qwen3.5-0.8B") is None


def test_use_sets_the_model_and_leaves_the_rest_of_the_settings_as_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = bundle(models_folder() / "small")
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text(
        '# mine\nthinking = true  # always\n\n[persona.x]\nsystem = "model_dir = 1"\n', "utf-8"
    )
    assert run(capsys, "use", "small")[0] == 0
    text = settings_path().read_text("utf-8")
    assert load_settings().model_dir == str(place)
    assert "# mine\nthinking = true  # always\n" in text
    assert '[persona.x]\nsystem = "model_dir = 1"\n' in text
    change_settings({"model_dir": "other"})
    assert settings_path().read_text("utf-8").count("model_dir = ") == 2
    assert load_settings().model_dir == "other"
    assert run(capsys, "use", "gone")[0] == 2


def test_a_settings_file_that_is_wrong_is_not_changed() -> None:
    settings_path().parent.mkdir(parents=True)
    settings_path().write_text("nonsense = 1\n", "utf-8")
    with pytest.raises(UsageError, match="nonsense is no setting"):
        change_settings({"model_dir": "x"})
    assert settings_path().read_text("utf-8") == "nonsense = 1\n"


def test_a_bundle_is_moved_into_the_models_folder_under_a_name_that_is_free() -> None:
    bundle(Path("out"))
    assert add(Path("out"), "small") == models_folder() / "small"
    assert [it.name for it in installed()] == ["small"]
    bundle(Path("again"))
    for name, said in (("small", "already"), ("../x", "no name"), ("", "no name"), ("out", "no")):
        with pytest.raises(UsageError, match=said):
            add(Path("again"), name)
    with pytest.raises(BundleError, match="is no bundle"):
        add(Path("nowhere"), "x")


def test_rm_asks_first_and_deletes_nothing_outside_the_models_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle(Path("out"))
    bundle(models_folder() / "small")
    code, _, said = run(capsys, "rm", "small")
    assert (code, "without a terminal give --yes" in said) == (2, True)
    assert run(capsys, "rm", "small", "--yes")[0] == 0
    assert not (models_folder() / "small").exists()
    with pytest.raises(UsageError, match="there is no model out"):
        remove("out")
    assert Path("out").exists()
