"""The terminal may take any size from one moment to the next, down to a single cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from q35chat.tui.screens.chat import Opening
from tests.tui.scenes import SCENES
from tests.tui.support import NARROW, WIDE, Chat, opened

JUMPS = [
    (44, 30), (200, 50), (1, 1), WIDE, (2, 2), (3, 40), (120, 1), (7, 7), WIDE,
]  # fmt: skip


SCREENS = [
    "empty", "thinking", "streaming", "pictures", "too_large", "failed", "slash", "sessions",
    "settings", "help_page", "picker", "code_blocks", "confirm", "setup_form",
]  # fmt: skip
"""Scenes with widgets of their own."""


async def jump(chat: Chat) -> None:
    """Every size in one step; the pilot raises what a handler raised."""
    for size in JUMPS:
        await chat.pilot.resize_terminal(*size)
        await chat.pilot.pause()
        assert chat.app.size == size
        assert chat.app.is_running


@pytest.mark.parametrize("name", SCREENS)
async def test_every_screen_takes_any_jump_of_size_and_is_there_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scene = SCENES[name]()
    opening = Opening(scene.session)
    async with opened(scene.workspace, size=WIDE, opening=opening, loaded=scene.loads) as chat:
        chat.app.exporter = scene.exporter
        await scene.go(chat)
        before = await chat.settled()
        await jump(chat)
        assert await chat.settled() == before
        scene.open_gates()
        await chat.idle()


async def test_the_meters_have_the_reading_at_once_in_whichever_form_is_on_screen() -> None:
    async with opened(size=WIDE) as chat:
        await chat.ask("how far?")
        await chat.settled()
        chat.screen.session.meter.idle(chat.conversation)
        free = f"{chat.screen.session.meter.capacity.free:,} free"
        for size in (NARROW, WIDE, NARROW, WIDE):
            await chat.pilot.resize_terminal(*size)
            assert free in chat.text
            assert "no model yet" not in chat.text
