"""What the window of the terminal is told: its title, and that a long answer is complete."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from q35chat.settings import Settings
from q35chat.tui.chat import running_turn
from q35chat.tui.notices import notice, title
from tests.doubles.scripted_workspace import Gate, Reply, ScriptedWorkspace
from tests.tui.support import Chat, opened


def listen(chat: Chat) -> list[str]:
    """What the application writes to its terminal from now on."""
    driver, written = chat.app._driver, list[str]()
    assert driver is not None
    driver.write = written.append  # type: ignore[assignment,method-assign]
    return written


def test_nothing_in_a_title_or_a_notice_steers_the_terminal() -> None:
    assert title("a\x1b]0;b\x07c\nd") == "\x1b]2;a␛]0;b␇c d\x07"
    assert notice("x", {}) == "\x1b]9;x\x07\x07"
    assert notice("x", {"TMUX": "1"}) == "\x1bPtmux;\x1b\x1b]9;x\x07\x1b\\\x07"


async def test_the_window_has_the_name_of_the_chat(chat: Chat) -> None:
    written = listen(chat)
    await chat.ask("What is a cache?")
    assert title("What is a cache?") in written
    assert any("]2;● " in text for text in written)


@pytest.mark.parametrize(
    ("spent", "focused", "wanted", "told"),
    [(30.0, False, True, 1), (1.0, False, True, 0), (30.0, True, True, 0), (30.0, False, False, 0)],
)
async def test_a_long_answer_is_told_of_where_nobody_looks_and_that_is_wanted(
    spent: float, focused: bool, wanted: bool, told: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    gate = Gate()
    workspace = ScriptedWorkspace([Reply(gate=gate)])
    async with opened(workspace, settings=Settings(notify=wanted)) as chat:
        written = listen(chat)
        now = iter([0.0])
        clock = SimpleNamespace(monotonic=lambda: next(now, spent))
        monkeypatch.setattr(running_turn, "time", clock)
        await chat.send("hello")
        await chat.until(lambda: chat.screen.session.running)
        chat.app.app_focus = focused  # a key says that it has the focus
        gate.open()
        await chat.idle()
        notices = [text for text in written if "is complete" in text]
        assert len(notices) == told
