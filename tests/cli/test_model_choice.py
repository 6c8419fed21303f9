from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.bundle.bundle import MANIFEST_NAME
from q35chat.commands.model import ModelChoice, choose_model
from q35chat.settings import Settings

DEMO = Path("/cache/demo")


def _no_demo() -> Path:
    raise AssertionError("the demo was made")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_option_wins(here: Path) -> None:
    chosen = choose_model(Path("mine"), Settings(model_dir="set"), _no_demo)
    assert chosen == ModelChoice(Path("mine"))


def test_the_settings_come_next(here: Path) -> None:
    chosen = choose_model(None, Settings(model_dir="~/set"), _no_demo)
    assert chosen == ModelChoice(Path.home() / "set")


def test_a_bundle_in_out_comes_next(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / MANIFEST_NAME).write_text("{}", encoding="utf-8")
    assert choose_model(None, Settings(), _no_demo) == ModelChoice(Path("out"))


def test_a_folder_out_that_is_no_bundle_does_not_count(here: Path) -> None:
    (here / "out").mkdir()
    assert choose_model(None, Settings(), lambda: DEMO) == ModelChoice(DEMO, is_demo=True)
