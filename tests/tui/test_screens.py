"""What the screens look like, words and colours, compared with the files in tests/tui/screens.

After a wanted change: `make screens`, then read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from q35chat.tui.screens import help as help_screen
from q35chat.tui.screens.chat import Opening
from tests.tui.scenes import SCENES, Scene, still_clocks
from tests.tui.snapshots import Shot, difference, read, shoot, side_by_side, written
from tests.tui.support import NARROW, WIDE, Chat, opened

SCREENS = Path(__file__).parent / "screens"
HOUSE = ("q35-dark", "q35-light")
FEW = ("answered", "full")
REWRITE = "REWRITE_SCREENS"


def stored(name: str, size: tuple[int, int]) -> Path:
    return SCREENS / f"{name}-{size[0]}x{size[1]}.txt"


async def shots(chat: Chat, themes: Sequence[str]) -> Shot:
    """The screen as it is, in these themes."""
    taken = []
    for theme in themes:
        chat.app.theme = theme
        await chat.settled()
        taken.append(shoot(chat.app, theme))
    return side_by_side(taken)


async def played(
    scene: Scene, sizes: Sequence[tuple[int, int]], themes: Sequence[str]
) -> dict[tuple[int, int], Shot]:
    """Play a scene once and look at it in all sizes and themes."""
    opening = Opening(scene.session)
    async with opened(scene.workspace, size=sizes[0], opening=opening, loaded=scene.loads) as chat:
        chat.app.exporter = scene.exporter
        await scene.go(chat)
        found = {}
        for size in sizes:
            await chat.pilot.resize_terminal(*size)
            found[size] = await shots(chat, themes)
        scene.open_gates()
        await chat.idle()
    return found


def compare(path: Path, shot: Shot) -> None:
    if os.environ.get(REWRITE):
        path.write_text(written(shot), "utf-8")
    changes = difference(read(path.read_text("utf-8")), shot)
    assert not changes, f"{path.name} has changed (`make screens` rewrites it):\n{changes}"


@pytest.mark.parametrize("name", SCENES)
async def test_screen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # its length decides where the help page breaks lines
    monkeypatch.setattr(help_screen, "preferences_path", lambda: Path("/config/interface.toml"))
    with still_clocks(monkeypatch):
        found = await played(SCENES[name](), (WIDE, NARROW), HOUSE)
    for size, shot in found.items():
        compare(stored(name, size), shot)


@pytest.mark.parametrize("name", FEW)
async def test_screen_in_the_colours_of_the_terminal(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with still_clocks(monkeypatch):
        found = await played(SCENES[name](), (WIDE,), ("ansi-dark", "ansi-light"))
    compare(stored(f"{name}-ansi", WIDE), found[WIDE])


@pytest.mark.parametrize("name", FEW)
async def test_screen_without_colours(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    with still_clocks(monkeypatch):
        found = await played(SCENES[name](), (WIDE,), HOUSE)
    compare(stored(f"{name}-no_colour", WIDE), found[WIDE])


@pytest.mark.parametrize("name", ["answered", "full", "settings", "setup_form"])
async def test_a_screen_made_narrow_is_the_screen_that_was_narrow_from_the_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with still_clocks(monkeypatch):
        found = await played(SCENES[name](), (NARROW,), HOUSE)
    compare(stored(name, NARROW), found[NARROW])


def test_every_stored_screen_belongs_to_a_scene() -> None:
    few = {stored(f"{name}-{kind}", WIDE).name for name in FEW for kind in ("ansi", "no_colour")}
    all_sizes = {stored(name, size).name for name in SCENES for size in (WIDE, NARROW)}
    assert {path.name for path in SCREENS.iterdir()} == few | all_sizes
