"""Every state a user sees, as a scene: what is behind the application, and how to get there."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from q35chat.chat.service import ModelEntry, ModelInfo
from q35chat.chat.values import DEFAULTS, Persona
from q35chat.errors import BundleError, RuntimeFailure
from q35chat.tui.chat import running_turn
from q35chat.tui.chat import session as chat_session
from q35chat.tui.chat.meter import Meter
from q35chat.tui.exporting import Phase
from q35chat.tui.screens import conversations as conversations_screen
from q35chat.tui.screens import setup as export_progress
from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_exporter import MIB, ScriptedExporter
from tests.doubles.scripted_workspace import ADDED, MODEL, ScriptedWorkspace, dialogue
from tests.tui.setting_up import DEMO
from tests.tui.support import WIDE, Chat, opened, picture_bytes, picture_file

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

Go = Callable[[Chat, Gate], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """How to get there, and what is behind the application: tokens wait at the gate, `session` is
    opened at the start, `loads` is whether the model comes up before `go`."""

    go: Go
    workspace: Callable[[Gate], ScriptedWorkspace]
    session: str | None = None
    exporter: Callable[[], ScriptedExporter] | None = None
    loads: bool = True


SCENES: dict[str, Scene] = {}


def scene(
    workspace: Callable[[Gate], ScriptedWorkspace] = lambda _: ScriptedWorkspace(), **options: Any
) -> Callable[[Go], Go]:
    """A scene by the name of the function."""

    def register(go: Go) -> Go:
        SCENES[go.__name__] = Scene(go, workspace, **options)
        return go

    return register


def replying(*replies: Reply) -> Callable[[Gate], ScriptedWorkspace]:
    """A workspace with these replies."""
    return lambda _: ScriptedWorkspace(replies)


def gated(answer: str = CODE, reasoning: str = "") -> Callable[[Gate], ScriptedWorkspace]:
    """A workspace whose tokens wait at the gate."""
    return lambda gate: ScriptedWorkspace(
        [Reply(answer, gate=gate, wall_ms=WALL, reasoning=reasoning)]
    )


@asynccontextmanager
async def played(scene: Scene, size: tuple[int, int] = WIDE) -> AsyncIterator[Chat]:
    """The application in a scene; what waits goes on at the end."""
    gate, opening = Gate(), Opening(scene.session)
    workspace = scene.workspace(gate)
    async with opened(workspace, size=size, opening=opening, loaded=scene.loads) as chat:
        chat.app.exporter = exporter = scene.exporter() if scene.exporter else None
        await scene.go(chat, gate)
        yield chat
        gate.open()
        for waits in (workspace.load_gate, exporter.gate if exporter else None):
            if waits is not None:
                waits.set()
        await chat.idle()


@scene()
async def empty(chat: Chat, _: Gate) -> None:
    await chat.see("sends, Ctrl+J")


def demo(_: Gate) -> ScriptedWorkspace:
    return ScriptedWorkspace(info=DEMO)


@scene(demo)
async def first_run(chat: Chat, _: Gate) -> None:
    await chat.see("gets a real one here")


SERVER = ModelInfo(
    name="qwen3.5-397b", target="server", precision="", device="10.0.0.5:8000", capacity=2048,
    is_demo=False, remote="http://10.0.0.5:8000/v1", load="KV cache 37% used · 3 waiting",
    estimated=True,
)  # fmt: skip


@scene(lambda _: ScriptedWorkspace(info=SERVER))
async def server_welcome(chat: Chat, _: Gate) -> None:
    await chat.see("What you write goes to")


@scene(lambda _: ScriptedWorkspace(load_gate=threading.Event()), loads=False)
async def loading(chat: Chat, _: Gate) -> None:
    await chat.write("What is a KV cache?")
    await chat.see("The model is loading")


NO_MANIFEST = BundleError("out has no manifest; export the model again with q35chat export")


@scene(lambda _: ScriptedWorkspace(load_error=NO_MANIFEST), loads=False)
async def load_failed(chat: Chat, _: Gate) -> None:
    await chat.see("out has no manifest")


@scene(lambda gate: ScriptedWorkspace([Reply(pictures=1, reading_gate=gate)]))
async def reading(chat: Chat, gate: Gate) -> None:
    await chat.attach(picture_file(Path.cwd()))
    await chat.send("What is on this picture? " * 6)
    gate.let(1)
    await chat.until(lambda: "reading 25%" in chat.flat or "reading 25%" in chat.text)


@scene(gated(reasoning=THOUGHT))
async def thinking(chat: Chat, gate: Gate) -> None:
    await chat.send("Write a binary search.")
    gate.let(17)
    await chat.made(17)


@scene(gated())
async def streaming(chat: Chat, gate: Gate) -> None:
    await chat.send("Write a binary search.")
    gate.let(32)
    await chat.made(32)
    await chat.write("and now")


@scene(replying(Reply(CODE, wall_ms=WALL, reasoning=THOUGHT)))
async def answered(chat: Chat, _: Gate) -> None:
    await chat.ask("Write a binary search.")


@scene(replying(Reply("The second one.", wall_ms=WALL)))
async def pictures(chat: Chat, _: Gate) -> None:
    Path("flag.png").write_bytes(picture_bytes((96, 48)))
    await chat.attach(picture_file(Path.cwd()), Path("flag.png"))
    await chat.ask("Which one is half blue?")
    await chat.until(lambda: chat.text.count("▀▀▀▀▀") >= 2)
    await chat.attach(picture_file(Path.cwd()))
    await chat.write("And this one?")
    await chat.see("(4 picture)")


@scene(replying(Reply("It returns the price with the tax.", wall_ms=WALL)))
async def files(chat: Chat, _: Gate) -> None:
    chips = chat.screen.composer.chips
    for name, text in (("tool.py", CODE), ("notes.md", "# Notes")):
        Path(name).write_text(text, "utf-8")
        chat.screen.draft.attach((Path(name),))
        await chat.until(lambda: len(chips.files) == 1)
        if name == "tool.py":
            await chat.ask("What does it do?")
    await chat.write("And this?")
    await chat.see("this turn needs")


@scene(gated())
async def stopped(chat: Chat, gate: Gate) -> None:
    await chat.send("Write a binary search.")
    gate.let(9)
    await chat.made(9)
    await chat.press("escape")
    await chat.see("■ stopped")
    await chat.idle()


def three_questions(_: Gate) -> ScriptedWorkspace:
    workspace = ScriptedWorkspace()
    workspace.add("Three questions", dialogue(3))
    return workspace


@scene(three_questions, session="c1")
async def editing(chat: Chat, _: Gate) -> None:
    await chat.press("ctrl+e", "ctrl+e")
    await chat.see("editing question 2 of 3")
    await chat.see("this turn needs")


def long_story(used: int) -> Callable[[Gate], ScriptedWorkspace]:
    def workspace(_: Gate) -> ScriptedWorkspace:
        workspace = ScriptedWorkspace([Reply("And so it went on. " * 30, "", "capacity")])
        workspace.add("A long story", dialogue(30)).fill(used)
        return workspace

    return workspace


@scene(long_story(1_000), session="c1")
async def file_too_large(chat: Chat, _: Gate) -> None:
    path = Path("long.txt")
    path.write_text("\n".join(f"line number {number}" for number in range(2_000)), "utf-8")
    chat.screen.draft.attach((path,))
    await chat.see("This file does not fit")


@scene(long_story(1_920), session="c1")
async def too_large(chat: Chat, _: Gate) -> None:
    await chat.write("word " * 200)
    await chat.see("✗")
    await chat.press("enter")
    await chat.see("This turn does not fit")


@scene(long_story(1_880), session="c1")
async def warning(chat: Chat, _: Gate) -> None:
    await chat.write("And then?")
    await chat.see("of the capacity is used")
    await chat.see("this turn needs")


@scene(long_story(1_920), session="c1")
async def full(chat: Chat, _: Gate) -> None:
    await chat.ask("Go on.")
    await chat.see("Capacity reached")


NO_MEMORY = RuntimeFailure("step 12 failed: 7.1 GiB asked, 2.0 GiB free; use a smaller precision")


@scene(replying(Reply("I was about to say", error=NO_MEMORY, fail_after=3)))
async def failed(chat: Chat, _: Gate) -> None:
    await chat.ask("Hello?")
    await chat.see("7.1 GiB")


@scene(replying(Reply(CHINESE, wall_ms=WALL)))
async def chinese(chat: Chat, _: Gate) -> None:
    await chat.ask("请用中文解释二分查找，并给出例子。为什么它这么快？")
    await chat.write("谢谢！还有")
    await chat.see("this turn needs")


@scene()
async def slash(chat: Chat, _: Gate) -> None:
    await chat.press(*"/e")
    await chat.see("/export")


def three_chats(_: Gate) -> ScriptedWorkspace:
    workspace = ScriptedWorkspace()
    for title in ("Binary search in Python", "二分查找", "Packing list for Norway"):
        workspace.add(title, dialogue(3))
    return workspace


@scene(three_chats)
async def sessions(chat: Chat, _: Gate) -> None:
    await chat.press("ctrl+l")
    await chat.see("Packing list")


@scene()
async def settings(chat: Chat, _: Gate) -> None:
    await chat.press("f2")
    await chat.see("Temperature")


def with_personas(_: Gate) -> ScriptedWorkspace:
    workspace = ScriptedWorkspace()
    workspace.personas = lambda: (
        Persona(DEFAULTS, "", False),
        Persona("translator", "Translate into Chinese.", False, None, {"temperature": 0.2}),
        Persona("coder", None, None, 200),
    )
    return workspace


@scene(with_personas)
async def personas(chat: Chat, _: Gate) -> None:
    await chat.press(*"/persona", "enter")
    await chat.see("● default")


def with_models(_: Gate) -> ScriptedWorkspace:
    workspace = ScriptedWorkspace()
    facts = "cpu · int4 · 2,048 slots · 620.0 MiB"
    workspace.models = lambda: (
        ModelEntry("out", Path("out"), MODEL.name, f"{MODEL.name} · {facts}"),
        ModelEntry("qwen-4b", Path("4b"), "qwen-4b", f"Qwen3.5-4B · {facts}"),
    )
    return workspace


@scene(with_models)
async def models(chat: Chat, _: Gate) -> None:
    await chat.press(*"/model", "enter")
    await chat.see("● out")


def with_answers(_: Gate) -> ScriptedWorkspace:
    workspace = with_models(_)
    workspace.backend.replies[:] = [
        Reply(CODE, wall_ms=WALL),
        Reply("With `bisect`.", wall_ms=WALL),
    ]
    return workspace


@scene(with_answers)
async def two_answers(chat: Chat, _: Gate) -> None:
    await chat.ask("Write a binary search.")
    await chat.press(*"/compare qwen-4b", "enter")
    await chat.see("With bisect.")
    await chat.until(lambda: chat.text.count("first token") + chat.text.count("/step") >= 2)


@scene()
async def help_page(chat: Chat, _: Gate) -> None:
    await chat.press("f1")
    await chat.see("Keys and commands")


@scene()
async def picker(chat: Chat, _: Gate) -> None:
    Path("holiday").mkdir(exist_ok=True)
    Path("flag.png").write_bytes(picture_bytes((96, 48)))
    picture_file(Path.cwd())
    await chat.press("ctrl+o")
    await chat.see("flag.png")
    await chat.press("down")
    await chat.until(lambda: "▀▀▀▀▀" in chat.text)


@scene(
    replying(Reply(f"{CODE}\n\n```sh\npython -m timeit 'search(items, 7)'\n```\n", wall_ms=WALL))
)
async def code_blocks(chat: Chat, _: Gate) -> None:
    await chat.ask("Write a binary search.")
    await chat.press("f4")
    await chat.see("Copy a code block")


@scene(gated())
async def confirm(chat: Chat, gate: Gate) -> None:
    await chat.send("Write a binary search.")
    gate.let(9)
    await chat.made(9)
    await chat.press("ctrl+q")
    await chat.see("Stop it and quit?")


@scene(demo, exporter=ScriptedExporter)
async def setup_form(chat: Chat, _: Gate) -> None:
    await chat.press("f9")
    await chat.see("Get a real model")
    await chat.press("enter")
    await chat.until(lambda: "RAM" in chat.flat)


PHASES = (
    Phase("download", 1800 * MIB, 1800 * MIB, ended=True),
    Phase("vision", 0, 100 * MIB),
    Phase("vision", 60 * MIB, 100 * MIB),
)


@scene(demo, exporter=partial(ScriptedExporter, phases=PHASES))
async def setup_progress(chat: Chat, gate: Gate) -> None:
    await setup_form(chat, gate)
    assert isinstance(chat.app.exporter, ScriptedExporter)
    chat.app.exporter.gate = threading.Event()
    await chat.press("enter")
    await chat.see("60%")


@scene(demo, exporter=ScriptedExporter)
async def setup_done(chat: Chat, gate: Gate) -> None:
    await setup_form(chat, gate)
    await chat.press("enter")
    await chat.see("is ready")


@contextmanager
def still_clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No time passes that a screen would show."""
    with monkeypatch.context() as patch:
        patch.setattr(chat_session, "Meter", partial(Meter, clock=lambda: 0.0))
        patch.setattr(running_turn, "time", SimpleNamespace(monotonic=lambda: 1.0))
        patch.setattr(conversations_screen, "time", SimpleNamespace(time=lambda: ADDED + 7_201))
        patch.setattr(export_progress.ExportProgress.__init__, "__defaults__", (lambda: 0.0,))
        yield
