"""A test that waits in vain says what it wished for and what it saw instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import patience
from tests.tui.support import Chat
from tests.tui.test_on_a_terminal import program
from tests.tui.test_tmux import terminal
from tests.tui.tmux import Tmux

__all__ = ["terminal"]


async def never(chat: Chat) -> None:
    await chat.until(lambda: chat.text == "never")


async def resting(chat: Chat) -> None:
    chat.app.run_worker(asyncio.Event().wait())
    await chat.settled()


@pytest.mark.parametrize(
    ("wait", "wish"),
    [
        (lambda chat: chat.see("nowhere"), "never came: 'nowhere' on the screen"),
        (lambda chat: chat.hear("nothing"), "never came: 'nothing' in a message"),
        (never, 'never came: await chat.until(lambda: chat.text == "never")'),
        (resting, "never came: the screen comes to rest"),
    ],
)
async def test_an_unmet_wish_fails_with_its_words_and_the_screen(
    chat: Chat, wait: Any, wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.write("what stands there")
    chat.app.notify("and was said")
    await chat.see("and was said")
    monkeypatch.setattr(patience, "STILL_S", 0.1)
    with pytest.raises(AssertionError) as failed:
        await wait(chat)
    problem = str(failed.value)
    assert problem.startswith(f"{wish}\nmessages: and was said\n")
    assert "what stands there" in problem


def test_an_unmet_wish_at_a_terminal_shows_its_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    with program("-c", "print('stands there'); input()") as session:
        session.until("stands there")
        monkeypatch.setattr(patience, "STILL_S", 0.1)
        with pytest.raises(AssertionError, match=r"'nowhere' never came:\s+stands there"):
            session.until("nowhere")


@pytest.mark.tmux
def test_an_unmet_wish_in_tmux_shows_its_screen(
    terminal: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.type("stands there")
    terminal.see("stands there")
    monkeypatch.setattr(patience, "STILL_S", 0.1)
    with pytest.raises(AssertionError, match=r"(?s)'nowhere' never came:.*stands there"):
        terminal.see("nowhere")
