"""What the window of the terminal is told: its title, and that a long answer is complete."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from q35chat.settings import Settings
from q35chat.tui.chat import running_turn
from q35chat.tui.notices import notice, title
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
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
    assert notice("a;\x1b]b", {"TERM": "foot"}) == "\x1b]777;notify;q35chat;a,␛]b\x07\x07"
    assert notice("x", {"TMUX": "1"}) == "\x1bPtmux;\x1b\x1b]9;x\x07\x1b\\\x07"


async def test_the_window_has_the_name_of_the_chat(chat: Chat) -> None:
    written = listen(chat)
    await chat.ask("What is a cache?")
    assert title("What is a cache?") in written
    assert any("]2;● " in text for text in written)


async def test_the_title_says_how_far_an_answer_is() -> None:
    reading, gate = Gate(), Gate()
    reply = Reply("word " * 20, token_size=5, gate=gate, reading_gate=reading)
    async with opened(ScriptedWorkspace([reply])) as chat:
        written = listen(chat)
        await chat.send("count")
        reading.let(2)
        await chat.until(lambda: title("● 46% · count") in written)
        reading.open()
        gate.let(13)
        await chat.until(lambda: title("● 10 tok · count") in written)
        gate.open()
        await chat.idle()
        assert written[-1] != title("● 10 tok · count")


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"TERM": "foot"}, 777), ({"TERM": "rxvt-unicode-256color"}, 777),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, 777),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "230804"}, 777),
        ({"TERM": "xterm-kitty"}, 9), ({"TERM_PROGRAM": "iTerm.app"}, 9),
    ],
)  # fmt: skip
def test_a_notice_is_in_the_words_that_the_terminal_knows(
    environment: dict[str, str], number: int
) -> None:
    assert f"\x1b]{number};" in notice("done", environment)


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
