"""Takes the README's screenshots: the real application, driven by keys, over the demo model.

`python -m tools.screenshots assets/screenshots` writes one SVG a scene.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual.pilot import Pilot

from q35chat.commands.chat import ChatOptions, stored_workspace
from q35chat.settings import load_settings
from q35chat.store import Store
from q35chat.tui.app import ChatApp
from q35chat.tui.preferences import Drafts, Preferences
from q35chat.tui.screens.chat import ChatScreen, Opening

SIZE = (120, 36)
PICTURES = Path("assets/pictures")
PATIENCE_S = 120.0


async def _until(pilot: Pilot[None], done: Callable[[], bool]) -> None:
    """Let the application run until `done`; TimeoutError after `PATIENCE_S`."""
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > give_up:
            raise TimeoutError("the application did not come to rest")
        await pilot.pause(0.05)


def _app(image: Path | None) -> ChatApp:
    opening = Opening(images=() if image is None else (image,))
    options = ChatOptions(model_dir=None)
    space = stored_workspace(Store(), options, load_settings(), lambda _: None)
    return ChatApp(space, opening, Preferences(), Drafts.at_home())


def _answered(screen: ChatScreen, turns: int) -> bool:
    return len(screen.steps) >= 2 * turns and not screen.generation.running


async def _scene(questions: list[str], image: Path | None) -> str:
    """Ask one question after the other; the screen afterwards, as SVG."""
    app = _app(image)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        screen = app.screen_stack[1]
        assert isinstance(screen, ChatScreen)
        await _until(pilot, lambda: screen.conversation is not None)
        for turn, question in enumerate(questions, start=1):
            screen.composer.editor.put(question)
            await pilot.pause(0.5)
            await pilot.press("enter")
            await _until(pilot, partial(_answered, screen, turn))
            await pilot.pause(0.5)
        return app.export_screenshot(title="q35chat")


def main(folder: Path) -> None:
    """Write every scene into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    scenes = {
        "picture": (
            ["What do you see?", "How do I use my own model?"],
            PICTURES / "shapes.png",
        ),
        "capacity": (["Count to 200"], None),
    }
    for name, (questions, image) in scenes.items():
        with tempfile.TemporaryDirectory() as home:
            os.environ["XDG_DATA_HOME"] = os.environ["XDG_STATE_HOME"] = home
            os.environ["XDG_CONFIG_HOME"] = home
            svg = asyncio.run(_scene(questions, image))
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(f"wrote {folder / name}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
