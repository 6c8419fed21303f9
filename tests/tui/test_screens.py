"""What the screens look like, as text, compared with tests/tui/screens.

After a wanted change: `REWRITE_SCREENS=1 pytest tests/tui/test_screens.py`, then read the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from q35chat.errors import RuntimeFailure
from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_workspace import Gate, Reply, ScriptedWorkspace, dialogue
from tests.tui.support import NARROW, WIDE, Chat, opened, picture_file

SCREENS = Path(__file__).parent / "screens"
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

State = tuple[ScriptedWorkspace, Callable[[Chat], Awaitable[None]]]


def empty() -> State:
    async def go(chat: Chat) -> None:
        await chat.see("sends, Ctrl+J")

    return ScriptedWorkspace(), go


def answered() -> State:
    async def go(chat: Chat) -> None:
        await chat.ask("Write a binary search.")

    return ScriptedWorkspace([Reply(CODE, wall_ms=WALL, reasoning=THOUGHT)]), go


def thinking() -> State:
    gate = Gate()

    async def go(chat: Chat) -> None:
        await chat.write("Write a binary search.")
        await chat.press("enter")
        gate.let(17)
        await chat.made(17)

    return ScriptedWorkspace([Reply(CODE, gate=gate, wall_ms=WALL, reasoning=THOUGHT)]), go


def pictures() -> State:
    async def go(chat: Chat) -> None:
        await chat.screen.attach([picture_file(Path.cwd()), picture_file(Path.cwd(), "b.png")])
        await chat.until(lambda: len(chat.screen.composer.chips.attachments) == 2)
        await chat.ask("Which one is red?")
        await chat.until(lambda: chat.text.count("▀▀▀▀▀") >= 2)
        await chat.screen.attach([picture_file(Path.cwd())])
        await chat.write("And this one?")
        await chat.see("(4 picture)")

    return ScriptedWorkspace([Reply("Both are.", wall_ms=WALL)]), go


def too_large() -> State:
    async def go(chat: Chat) -> None:
        await chat.write("word " * 200)
        await chat.see("✗")
        await chat.press("enter")
        await chat.see("This turn does not fit")

    return nearly_full(), go


def full() -> State:
    async def go(chat: Chat) -> None:
        await chat.ask("Go on.")
        await chat.see("Capacity reached")

    return nearly_full(), go


def nearly_full() -> ScriptedWorkspace:
    workspace = ScriptedWorkspace([Reply("And so it went on. " * 30, "", "capacity")])
    workspace.add("A long story", dialogue(30)).used = 1_920
    return workspace


def failed() -> State:
    async def go(chat: Chat) -> None:
        await chat.ask("Hello?")
        await chat.see("7.1 GiB")

    error = RuntimeFailure("step 12 failed: 7.1 GiB asked, 2.0 GiB free; use a smaller precision")
    return ScriptedWorkspace([Reply("I was about to say", error=error, fail_after=3)]), go


def chinese() -> State:
    async def go(chat: Chat) -> None:
        await chat.ask("请用中文解释二分查找，并给出例子。为什么它这么快？")
        await chat.write("谢谢！还有")
        await chat.see("this turn needs")

    return ScriptedWorkspace([Reply(CHINESE, wall_ms=WALL)]), go


def sessions() -> State:
    async def go(chat: Chat) -> None:
        await chat.press("ctrl+l")
        await chat.see("Packing list")

    workspace = ScriptedWorkspace()
    for title in ("Binary search in Python", "二分查找", "Packing list for Norway"):
        workspace.add(title, dialogue(3))
    return workspace, go


def settings() -> State:
    async def go(chat: Chat) -> None:
        await chat.press("f2")
        await chat.see("Temperature")

    return ScriptedWorkspace(), go


def help_page() -> State:
    async def go(chat: Chat) -> None:
        await chat.press("f1")
        await chat.see("Keys and commands")

    return ScriptedWorkspace(), go


STATES = {
    state.__name__: state
    for state in (
        empty, answered, thinking, pictures, too_large, full, failed, chinese, sessions, settings,
        help_page,
    )
}  # fmt: skip


def steady(text: str) -> str:
    """The screen without what this machine's clock decides, and without scroll bar ends."""
    without_bars = re.sub(r"[▁▂▃▄▅▆▇](?=\s*(?:│|\n))", " ", text)
    lines = [line.rstrip() for line in without_bars.split("\n")]
    return re.sub(r"\b\d+\.\d s\b", "#.# s", "\n".join(lines)) + "\n"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", STATES)
async def test_screen(
    name: str, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace, go = STATES[name]()
    stored = next(iter(workspace.conversations), None) if name in {"too_large", "full"} else None
    async with opened(workspace, size=size, opening=Opening(stored)) as chat:
        await go(chat)
        shown = steady(await chat.settled())
        for gate in (reply.gate for reply in workspace.replies if reply.gate is not None):
            gate.open()
        await chat.idle()
    path = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("REWRITE_SCREENS"):
        SCREENS.mkdir(exist_ok=True)
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8")
