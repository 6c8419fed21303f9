"""Takes the README's screenshots: the real application, driven by keys, over the demo model.

`python -m tools.screenshots assets/screenshots` writes one SVG a scene.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from textual import events

from q35chat.commands.chat import ChatOptions, stored_workspace
from q35chat.settings import Settings, load_settings
from q35chat.store import Store
from q35chat.tui.app import ChatApp
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.screens.chat import ChatScreen, Opening

SIZE = (120, 36)
PICTURES = Path("assets/pictures")
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Questions asked one after the other, the first about `image`; taken when the last answer
    is complete, or while it is written, once it is shown to this text."""

    questions: tuple[str, ...]
    image: Path | None = None
    shows: str = ""


SCENES = {
    "picture": Scene(
        ("What do you see?", "Which shape is in the middle?"), image=PICTURES / "shapes.png"
    ),
    "capacity": Scene(("Count to 100",), shows="38 39 40"),
}


async def _until(done: Callable[[], bool]) -> None:
    """Let the application run until `done`; TimeoutError after `PATIENCE_S`."""
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > give_up:
            raise TimeoutError("the application did not come to rest")
        await asyncio.sleep(0.002)


@contextmanager
def _app(image: Path | None) -> Iterator[ChatApp]:
    """The application over a store of its own; afterwards nothing computes any more."""
    opening = Opening(images=() if image is None else (image,))
    options = ChatOptions(model_dir=None)
    with Store() as store:
        space = stored_workspace(store, options, load_settings(), lambda _: None)
        try:
            yield ChatApp(space, opening, Settings(), Drafts.at_home())
        finally:
            space.stop_idle()


async def _played(scene: Scene) -> str:
    """The screen as SVG when the scene is over."""
    with _app(scene.image) as app:
        return await _take(app, scene)


async def _take(app: ChatApp, scene: Scene) -> str:
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        screen = app.screen_stack[1]
        assert isinstance(screen, ChatScreen)
        await _until(lambda: screen.session.conversation is not None)
        for turn, question in enumerate(scene.questions, start=1):
            screen.composer.editor.put(question)
            await pilot.pause(0.5)
            app.post_message(events.Key("enter", None))  # the pilot would wait for the answer
            await _until(_moment(screen, 2 * turn, scene.shows))
            if not scene.shows:
                await pilot.pause(0.5)
        taken = app.export_screenshot(title="q35chat")
        screen.turns.stop()
        await _until(lambda: not screen.session.running)
        return taken


def _moment(screen: ChatScreen, turns: int, shows: str) -> Callable[[], bool]:
    """When so many turns are complete, or the running one has this text on the screen."""

    def answered() -> bool:
        return len(screen.session.steps) >= turns and not screen.session.running

    def written() -> bool:
        lines = screen._compositor.render_strips()
        return answered() or any(shows in line.text for line in lines)

    return written if shows else answered


def main(folder: Path) -> None:
    """Write every scene into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        with tempfile.TemporaryDirectory() as home:
            os.environ["XDG_DATA_HOME"] = os.environ["XDG_STATE_HOME"] = home
            os.environ["XDG_CONFIG_HOME"] = home
            svg = asyncio.run(_played(scene))
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(f"wrote {folder / name}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
