"""Choosing a picture: folders up and down, names that fit, a preview only where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.tui.screens.picker import above
from tests.tui.support import NARROW, WIDE, Chat, box, opened, picture_file

LONG = "a_very_long_name_of_a_picture_from_the_holidays_in_norway_last_year.png"


def path(chat: Chat) -> str:
    return box(chat).value


async def test_two_dots_go_up_and_enter_still_takes_what_is_below_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    picture_file(inner, "deep.png")
    picture_file(tmp_path / "outer", "high.png")
    monkeypatch.chdir(inner)
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.see("deep.png")
        await chat.press("up", "enter")
        await chat.see("high.png")
        assert path(chat) == "../"
        await chat.press("enter")
        await chat.until(lambda: path(chat) == "../inner/")
        await chat.see("deep.png")
        await chat.press("enter")
        await chat.until(lambda: len(chat.screen.composer.chips.attachments) == 1)


async def test_an_empty_folder_can_be_left(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.see("empty/")
        await chat.press("enter")
        await chat.see("no folders, pictures or texts here")
        await chat.press("down", "down", "enter")
        await chat.until(lambda: path(chat) == "")


@pytest.mark.parametrize(
    ("listed", "higher"),
    [
        ("", "../"),
        ("../", "../../"),
        ("./", "./../"),
        ("~/", "~/../"),
        ("a/", ""),
        ("a/b/", "a/"),
        ("/a/b/", "/a/"),
        ("/a/", "/"),
        ("/", None),
        ("a/b", None),
        ("a", None),
    ],
)
def test_the_folder_above(listed: str, higher: str | None) -> None:
    assert above(listed) == higher


async def test_a_folder_without_pictures_keeps_no_room_for_a_preview(tmp_path: Path) -> None:
    (tmp_path / LONG[:60]).mkdir()
    async with opened(size=NARROW) as chat:
        await chat.press("ctrl+o")
        await chat.see(f"{LONG[:60]}/")


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_a_name_stands_on_one_line_beside_its_preview(
    size: tuple[int, int], tmp_path: Path
) -> None:
    picture_file(tmp_path, LONG)
    picture_file(tmp_path, "other.png")
    async with opened(size=size) as chat:
        await chat.press("ctrl+o")
        await chat.until(lambda: "▀▀▀▀▀" in chat.text)
        named = [line for line in chat.text.splitlines() if "norway" in line or "a_very" in line]
        assert len(named) == 1
        assert "a_very_long_name_of_a_picture" in named[0]
        assert "…" in named[0]
        assert "▀▀▀▀▀" in named[0]
