"""What the screens look like, words and colours, compared with the files in tests/tui/screens.

After a wanted change: `make screens`, then read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from q35chat.tui.screens import help as help_screen
from tests.tui.scenes import SCENES, played, still_clocks
from tests.tui.snapshots import Shot, difference, read, shoot, side_by_side, written
from tests.tui.support import NARROW, WIDE, Chat

SCREENS = Path(__file__).parent / "screens"
HOUSE = ("q35-dark", "q35-light")
FEW = ("answered", "full")
REWRITE = "REWRITE_SCREENS"
JUMPS = ((44, 30), (200, 50), (1, 1), WIDE, (2, 2), (3, 40), (120, 1), (7, 7))


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


async def looked_at(
    name: str,
    sizes: Sequence[tuple[int, int]],
    themes: Sequence[str],
    monkeypatch: Any,
    jumps: Sequence[tuple[int, int]] = (),
) -> dict[tuple[int, int], Shot]:
    """Play a scene once and look at it in all sizes and themes. Then its terminal jumps to other
    sizes, and it is there again."""
    found = {}
    with still_clocks(monkeypatch):
        async with played(SCENES[name], sizes[0]) as chat:
            for size in sizes:
                await chat.pilot.resize_terminal(*size)
                found[size] = await shots(chat, themes)
            before = await chat.resized(*sizes[0])
            for size in (*jumps, sizes[0]):
                await chat.pilot.resize_terminal(*size)
                await chat.pilot.pause()
                assert chat.app.size == size
            assert await chat.settled() == before
    return found


def compare(path: Path, shot: Shot) -> None:
    if os.environ.get(REWRITE):
        path.write_text(written(shot), "utf-8")
    changes = difference(read(path.read_text("utf-8")), shot)
    assert not changes, f"{path.name} has changed (`make screens` rewrites it):\n{changes}"


@pytest.mark.parametrize("name", SCENES)
async def test_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # its length decides where the help page breaks lines
    monkeypatch.setattr(help_screen, "settings_path", lambda: Path("/config/settings.toml"))
    found = await looked_at(name, (WIDE, NARROW), HOUSE, monkeypatch, JUMPS)
    for size, shot in found.items():
        compare(stored(name, size), shot)


@pytest.mark.parametrize("name", FEW)
async def test_screen_in_the_colours_of_the_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await looked_at(name, (WIDE,), ("ansi-dark", "ansi-light"), monkeypatch)
    compare(stored(f"{name}-ansi", WIDE), found[WIDE])


@pytest.mark.parametrize("name", FEW)
async def test_screen_without_colours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    found = await looked_at(name, (WIDE,), HOUSE, monkeypatch)
    compare(stored(f"{name}-no_colour", WIDE), found[WIDE])


@pytest.mark.parametrize("name", ["answered", "full", "settings", "setup_form"])
async def test_a_screen_made_narrow_is_the_screen_that_was_narrow_from_the_start(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await looked_at(name, (NARROW,), HOUSE, monkeypatch)
    compare(stored(name, NARROW), found[NARROW])


def test_every_stored_screen_belongs_to_a_scene() -> None:
    few = {stored(f"{name}-{kind}", WIDE).name for name in FEW for kind in ("ansi", "no_colour")}
    all_sizes = {stored(name, size).name for name in SCENES for size in (WIDE, NARROW)}
    assert {path.name for path in SCREENS.iterdir()} == few | all_sizes
