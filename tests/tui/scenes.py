"""Every state a user sees, as a scene: what is behind the application, and how to get there."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from q35chat.errors import BundleError, RuntimeFailure
from q35chat.tui.chat import running_turn
from q35chat.tui.chat import session as chat_session
from q35chat.tui.chat.meter import Meter
from q35chat.tui.exporting import Phase
from q35chat.tui.screens import sessions as sessions_screen
from q35chat.tui.screens import setup as export_progress
from tests.doubles.scripted_exporter import MIB, ScriptedExporter
from tests.doubles.scripted_workspace import (
    ADDED,
    Gate,
    Reply,
    ScriptedWorkspace,
    dialogue,
)
from tests.tui.setting_up import DEMO
from tests.tui.support import Chat, picture_bytes, picture_file

WALL = (54.0, 52.0, 55.0, 61.0, 53.0, 50.0, 90.0, 56.0)
CODE = (
    "Here is a **binary search**:\n\n```python\ndef search(items, target):\n    low = 0\n"
    "    high = len(items)\n```\n\n1. It needs a *sorted* list.\n2. It takes `O(log n)` steps.\n\n"
    "| n | steps |\n|---|---|\n| 1,000 | 10 |\n"
)
CHINESE = (
    "当然可以。**二分查找**要求列表已经排好序：\n\n1. 取中间的元素，与目标比较；\n"
    "2. 如果更小，就在右半部分继续。\n\n每一步把范围减半，所以只需要 `O(log n)` 次比较。👍\n"
)
THOUGHT = "They want a binary search. Keep it short: one function, two facts, one table. "

Go = Callable[[Chat], Awaitable[None]]


@dataclass
class Scene:
    """`session` is opened at the start; `gates` are opened at the end; `loads` is whether the
    model comes up before `go`."""

    go: Go
    workspace: ScriptedWorkspace = field(default_factory=ScriptedWorkspace)
    session: str | None = None
    exporter: ScriptedExporter | None = None
    gates: tuple[Gate | threading.Event, ...] = ()
    loads: bool = True

    def open_gates(self) -> None:
        """Let everything that waits go on."""
        for gate in self.gates:
            gate.set() if isinstance(gate, threading.Event) else gate.open()


def empty() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.see("sends, Ctrl+J")

    return Scene(go)


def first_run() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.see("gets a real one here")

    return Scene(go, ScriptedWorkspace(info=DEMO))


def loading() -> Scene:
    gate = threading.Event()

    async def go(chat: Chat) -> None:
        await chat.write("What is a KV cache?")
        await chat.see("The model is loading")

    return Scene(go, ScriptedWorkspace(load_gate=gate), gates=(gate,), loads=False)


def load_failed() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.see("out has no manifest")

    error = BundleError("out has no manifest; export the model again with q35chat export")
    return Scene(go, ScriptedWorkspace(load_error=error), loads=False)


def reading() -> Scene:
    gate = Gate()

    async def go(chat: Chat) -> None:
        chat.screen.draft.attach([picture_file(Path.cwd())])
        await chat.until(lambda: len(chat.screen.composer.chips.attachments) == 1)
        await chat.write("What is on this picture? " * 6)
        await chat.press("enter")
        gate.let(1)
        await chat.until(lambda: "reading 25%" in chat.flat or "reading 25%" in chat.text)

    return Scene(go, ScriptedWorkspace([Reply(pictures=1, reading_gate=gate)]), gates=(gate,))


def thinking() -> Scene:
    gate = Gate()

    async def go(chat: Chat) -> None:
        await chat.write("Write a binary search.")
        await chat.press("enter")
        gate.let(17)
        await chat.made(17)

    reply = Reply(CODE, gate=gate, wall_ms=WALL, reasoning=THOUGHT)
    return Scene(go, ScriptedWorkspace([reply]), gates=(gate,))


def streaming() -> Scene:
    gate = Gate()

    async def go(chat: Chat) -> None:
        await chat.write("Write a binary search.")
        await chat.press("enter")
        gate.let(32)
        await chat.made(32)
        await chat.write("and now")

    return Scene(go, ScriptedWorkspace([Reply(CODE, gate=gate, wall_ms=WALL)]), gates=(gate,))


def answered() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.ask("Write a binary search.")

    return Scene(go, ScriptedWorkspace([Reply(CODE, wall_ms=WALL, reasoning=THOUGHT)]))


def pictures() -> Scene:
    async def go(chat: Chat) -> None:
        Path("flag.png").write_bytes(picture_bytes((96, 48)))
        chat.screen.draft.attach([picture_file(Path.cwd()), Path("flag.png")])
        await chat.until(lambda: len(chat.screen.composer.chips.attachments) == 2)
        await chat.ask("Which one is half blue?")
        await chat.until(lambda: chat.text.count("▀▀▀▀▀") >= 2)
        chat.screen.draft.attach([picture_file(Path.cwd())])
        await chat.write("And this one?")
        await chat.see("(4 picture)")

    return Scene(go, ScriptedWorkspace([Reply("The second one.", wall_ms=WALL)]))


def stopped() -> Scene:
    gate = Gate()

    async def go(chat: Chat) -> None:
        await chat.write("Write a binary search.")
        await chat.press("enter")
        gate.let(9)
        await chat.made(9)
        await chat.press("escape")
        await chat.see("■ stopped")
        await chat.idle()

    return Scene(go, ScriptedWorkspace([Reply(CODE, gate=gate, wall_ms=WALL)]))


def editing() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.press("ctrl+e", "ctrl+e")
        await chat.see("editing question 2 of 3")
        await chat.see("this turn needs")

    workspace = ScriptedWorkspace()
    return Scene(go, workspace, workspace.add("Three questions", dialogue(3)).id)


def _long_story(used: int) -> ScriptedWorkspace:
    workspace = ScriptedWorkspace([Reply("And so it went on. " * 30, "", "capacity")])
    workspace.add("A long story", dialogue(30)).fill(used)
    return workspace


def too_large() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.write("word " * 200)
        await chat.see("✗")
        await chat.press("enter")
        await chat.see("This turn does not fit")

    return Scene(go, _long_story(1_920), "c1")


def warning() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.write("And then?")
        await chat.see("of the capacity is used")
        await chat.see("this turn needs")

    return Scene(go, _long_story(1_880), "c1")


def full() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.ask("Go on.")
        await chat.see("Capacity reached")

    return Scene(go, _long_story(1_920), "c1")


def failed() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.ask("Hello?")
        await chat.see("7.1 GiB")

    error = RuntimeFailure("step 12 failed: 7.1 GiB asked, 2.0 GiB free; use a smaller precision")
    reply = Reply("I was about to say", error=error, fail_after=3)
    return Scene(go, ScriptedWorkspace([reply]))


def chinese() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.ask("请用中文解释二分查找，并给出例子。为什么它这么快？")
        await chat.write("谢谢！还有")
        await chat.see("this turn needs")

    return Scene(go, ScriptedWorkspace([Reply(CHINESE, wall_ms=WALL)]))


def slash() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.press(*"/e")
        await chat.see("/export")

    return Scene(go)


def sessions() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.press("ctrl+l")
        await chat.see("Packing list")

    workspace = ScriptedWorkspace()
    for title in ("Binary search in Python", "二分查找", "Packing list for Norway"):
        workspace.add(title, dialogue(3))
    return Scene(go, workspace)


def settings() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.press("f2")
        await chat.see("Temperature")

    return Scene(go)


def help_page() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.press("f1")
        await chat.see("Keys and commands")

    return Scene(go)


def picker() -> Scene:
    async def go(chat: Chat) -> None:
        Path("holiday").mkdir(exist_ok=True)
        Path("flag.png").write_bytes(picture_bytes((96, 48)))
        picture_file(Path.cwd())
        await chat.press("ctrl+o")
        await chat.see("flag.png")
        await chat.press("down")
        await chat.until(lambda: "▀▀▀▀▀" in chat.text)

    return Scene(go)


def code_blocks() -> Scene:
    async def go(chat: Chat) -> None:
        await chat.ask("Write a binary search.")
        await chat.press("f4")
        await chat.see("Copy a code block")

    more = "\n\n```sh\npython -m timeit 'search(items, 7)'\n```\n"
    return Scene(go, ScriptedWorkspace([Reply(CODE + more, wall_ms=WALL)]))


def confirm() -> Scene:
    gate = Gate()

    async def go(chat: Chat) -> None:
        await chat.write("Write a binary search.")
        await chat.press("enter")
        gate.let(9)
        await chat.made(9)
        await chat.press("ctrl+q")
        await chat.see("Stop it and quit?")

    return Scene(go, ScriptedWorkspace([Reply(CODE, gate=gate, wall_ms=WALL)]), gates=(gate,))


def setup_form() -> Scene:
    async def go(chat: Chat) -> None:
        await _look_up(chat)

    return Scene(go, ScriptedWorkspace(info=DEMO), exporter=ScriptedExporter())


def setup_progress() -> Scene:
    gate = threading.Event()
    phases = (Phase("download", 1800 * MIB, 1800 * MIB, ended=True), Phase("vision", 0, 100 * MIB),
              Phase("vision", 60 * MIB, 100 * MIB))  # fmt: skip
    exporter = ScriptedExporter(phases=phases)

    async def go(chat: Chat) -> None:
        await _look_up(chat)
        exporter.gate = gate
        await chat.press("enter")
        await chat.see("60%")

    return Scene(go, ScriptedWorkspace(info=DEMO), exporter=exporter, gates=(gate,))


def setup_done() -> Scene:
    async def go(chat: Chat) -> None:
        await _look_up(chat)
        await chat.press("enter")
        await chat.see("is ready")

    return Scene(go, ScriptedWorkspace(info=DEMO), exporter=ScriptedExporter())


async def _look_up(chat: Chat) -> None:
    await chat.press("f9")
    await chat.see("hub id or folder")
    await chat.press("enter")
    await chat.until(lambda: "of memory" in chat.flat or "RAM" in chat.flat)


SCENES: dict[str, Callable[[], Scene]] = {
    scene.__name__: scene
    for scene in (
        empty, first_run, loading, load_failed, reading, thinking, streaming, answered, pictures,
        stopped, editing, too_large, warning, full, failed, chinese, slash, sessions, settings,
        help_page, picker, code_blocks, confirm, setup_form, setup_progress, setup_done,
    )
}  # fmt: skip


@contextmanager
def still_clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No time passes that a screen would show."""
    with monkeypatch.context() as patch:
        patch.setattr(chat_session, "Meter", partial(Meter, clock=lambda: 0.0))
        patch.setattr(running_turn, "time", SimpleNamespace(monotonic=lambda: 1.0))
        patch.setattr(sessions_screen, "time", SimpleNamespace(time=lambda: ADDED + 7_201))
        patch.setattr(export_progress.ExportProgress.__init__, "__defaults__", (lambda: 0.0,))
        yield
