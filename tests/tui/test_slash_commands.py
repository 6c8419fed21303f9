"""Every slash command, with and without a conversation."""

from __future__ import annotations

import threading

import pytest

from q35chat.tui.commands import BY_SLASH
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened

_LOADING = "The model is still loading"


SAYS: dict[str, tuple[str, str]] = {
    "regenerate": (_LOADING, "version 2 of 2"),
    "edit": (_LOADING, "editing question 1 of 1"),
    "editanswer": (_LOADING, "editing answer 1 of 1"),
    "continue": (_LOADING, "The last answer is complete"),
    "earlier": (_LOADING, "There is only one version"),
    "later": (_LOADING, "There is only one version"),
    "versions": (_LOADING, "All versions of this chat"),
    "drop": (_LOADING, "There is only one turn"),
    "summarise": (_LOADING, "This chat starts from the summary"),
    "new": (_LOADING, "q35chat · New chat"),
    "sessions": (_LOADING, "Search titles and texts"),
    "think": (_LOADING, "Thinking on"),
    "model": (_LOADING, "There is no model; F9 exports one"),
    "compare": (_LOADING, "There is no other model; F9 exports one"),
    "persona": (_LOADING, "none is there"),
    "recall": ("Search your questions", "Search your questions"),
    "editor": ("cannot be given to another program", "cannot be given to another program"),
    "file": ("Attach a picture or a file", "Attach a picture or a file"),
    "image": ("Attach a picture", "Attach a picture"),
    "copy": ("There is no answer to copy yet", "copy the answer"),
    "code": ("There is no code block to copy yet", "There is no code block to copy yet"),
    "copychat": ("There is nothing to copy yet", "copy the chat"),
    "export": ("There is nothing to export yet", "Written to"),
    "end": ("", ""),
    "more": ("", ""),
    "setup": (_LOADING, ""),
    "reasoning": ("have no reasoning", "have no reasoning"),
    "meters": ("", ""),
    "details": ("", ""),
    "settings": (_LOADING, "Temperature"),
    "help": ("Keys and commands", "Keys and commands"),
    "quit": ("", ""),
}
"""What each command says or shows, without a conversation and with one; some say nothing."""


async def say(chat: Chat, slash: str, words: str) -> None:
    """Type the command; it does what it should and leaves nothing in the composer."""
    await chat.press(*f"/{slash}", "enter")
    if slash == "quit":
        await chat.until(lambda: not chat.app.is_running)
        return
    if words:
        await chat.until(lambda: words in chat.said or words in chat.flat)
    else:
        await chat.pilot.pause()
        assert (chat.said, len(chat.app.screen_stack)) == ("", 2)
    written = {"edit": "hello", "editanswer": "A short answer."}
    assert chat.written == (written[slash] if "editing" in words else "")
    assert chat.app.is_running


def test_every_slash_command_is_tried_below() -> None:
    assert SAYS.keys() == BY_SLASH.keys()


@pytest.mark.parametrize("slash", sorted(SAYS))
async def test_every_slash_command_does_something_with_a_conversation(
    slash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    async with opened() as chat:
        await chat.ask("hello")
        await say(chat, slash, SAYS[slash][1])


@pytest.mark.parametrize("part", range(6))
async def test_every_slash_command_runs_without_a_conversation(part: int) -> None:
    gate = threading.Event()
    async with opened(ScriptedWorkspace(load_gate=gate), loaded=False) as chat:
        for slash in sorted(SAYS, key="quit".__eq__)[part::6]:
            chat.app.messages.clear()
            chat.screen.messages.on_click()
            await say(chat, slash, SAYS[slash][0])
            assert chat.screen.session.conversation is None
            if len(chat.app.screen_stack) > 2:
                await chat.press("escape")
        gate.set()
