"""The interface's settings file: what the user wrote in it is never thrown away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from q35chat.tui.preferences import (
    Preferences,
    load_preferences,
    preferences_path,
    save_preferences,
)
from tests.tui.support import opened


@pytest.mark.parametrize("name", ["/regenerate", "two words", 'a "quote"', "new"])
@pytest.mark.parametrize("keys", ["f9", "😀", "\x7f"])
def test_every_name_and_key_is_read_back_as_written(name: str, keys: str, tmp_path: Path) -> None:
    written = Preferences(keys={name: keys})
    save_preferences(tmp_path / "interface.toml", written)
    assert load_preferences(tmp_path / "interface.toml") == written


def test_a_key_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "interface.toml"
    path.write_text('[keys]\nnew = ["f9"]\n')
    assert "keys a table of texts" in load_preferences(path).problem


@pytest.mark.parametrize(
    "text", ["theme = " + "[" * 3000 + "]" * 3000, "keys = " + "{a=" * 3000 + "1" + "}" * 3000]
)
def test_a_file_nested_without_end_keeps_the_defaults(text: str, tmp_path: Path) -> None:
    path = tmp_path / "interface.toml"
    path.write_text(text)
    found = load_preferences(path)
    assert str(path) in found.problem
    assert found == Preferences(problem=found.problem)


def test_a_pipe_for_a_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "interface.toml"
    os.mkfifo(path)
    assert load_preferences(path) == Preferences(
        problem=f"{path} is no file; the defaults are used"
    )


async def test_a_file_with_a_mistake_in_it_is_not_written_over() -> None:
    path = preferences_path()
    path.parent.mkdir(parents=True)
    path.write_text('[keys]\nnew = "f9"\nhelp = \n')
    async with opened(preferences=load_preferences(path)) as chat:
        chat.app.choose_theme("q35-light")
        assert chat.app.theme == "q35-light"
        await chat.hear("not saved")
    assert 'new = "f9"' in path.read_text()


async def test_what_was_written_into_the_file_meanwhile_stays_when_a_setting_changes() -> None:
    path = preferences_path()
    async with opened(preferences=Preferences()) as chat:
        save_preferences(path, Preferences(pictures="none", keys={"new": "f9"}))
        chat.app.choose_theme("q35-light")
        chat.app.choose_pictures("blocks")
    assert load_preferences(path) == Preferences("q35-light", "blocks", {"new": "f9"})
