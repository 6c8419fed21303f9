"""What the terminal gets, byte for byte, while every screen shows texts that would steer it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual.drivers.headless_driver import HeadlessDriver

from q35chat.chat.values import Turn
from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.screens.chat import Opening
from q35chat.tui.screens.conversations import ConversationsScreen
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import WIDE, Chat, opened

C0 = "".join(map(chr, [*range(0x01, 0x09), *range(0x0B, 0x20), 0x7F]))
C1 = "".join(map(chr, range(0x80, 0xA0)))
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
SEQUENCES = (
    "\x1b]52;c;UElOSw==\x07",
    "\x1b]0;owned\x1b\\",
    "\x1b]8;;http://owned\x1b\\",
    "\x1b[31;41;7mred",
    "\x1b[2Jcleared",
    "\x1bP+q544e\x1b\\",
    "\x1b_Ga=d\x1b\\",
    "\x1bcreset",
    "\x9b31;41m",
    "\x9d52;c;UElOSw==\x9c",
    "\x90+q544e\x9c",
)
HOSTILE = "".join(("owned ", *SEQUENCES, C0, C1, BIDI, "\U0010eeee\U00100000 end"))
OWN = re.compile(
    r"\x1b\[(?:\d+;?)*m|\x1b\[\d+;\d+H|\x1b\[\?\d+[hl]|\x1b\]22;[a-z]+\x07|\r?\n"
    rf"|\x1b\[22;2t|\x1b\]2;[^{re.escape(C0 + C1 + BIDI)}\U00100000-\U0010ffff\n]*\x07"
)
"""What the application itself sends: colours, places, modes, pointers, ends of lines, and the
window's title, where nothing in that steers."""
HARMFUL = re.compile(f"[{re.escape(C0 + C1 + BIDI)}\U00100000-\U0010ffff]")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that is sent to the terminal from here on."""
    parts: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "write", lambda _, data: parts.append(data))
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    return parts


async def check(chat: Chat, sent: list[str], place: str) -> None:
    """Draw all of the screen on top, then look at what was sent."""
    await chat.settled()
    chat.app.screen.refresh(layout=True)
    chat.app.screen._compositor._dirty_regions.clear()
    chat.app._display(chat.app.screen, chat.app.screen._compositor.render_update(full=True))
    text = OWN.sub("", "".join(sent))
    found = HARMFUL.search(text)
    assert found is None, f"{place}: {text[max(0, found.start() - 40) : found.end() + 40]!r}"
    assert len("".join(sent)) > 1000, place
    sent.clear()


def hostile_folder(folder: Path) -> None:
    """Its name is completed after an `@`, and shown where a picture is chosen."""
    (folder / "owned\x1b[31;41;7m\x9b2J\u202e").mkdir()


async def test_no_screen_sends_what_a_text_would_have_the_terminal_do(
    tmp_path: Path, sent: list[str]
) -> None:
    hostile_folder(tmp_path)
    workspace = ScriptedWorkspace([Reply(HOSTILE, reasoning=HOSTILE)])
    turns = [Turn("user", HOSTILE), Turn("assistant", HOSTILE, reasoning=HOSTILE, finish="stop")]
    stored = workspace.add(HOSTILE, turns, summary=HOSTILE)
    workspace.add(f"another {HOSTILE}", turns)
    stored.change_settings(replace(stored.settings(), system_prompt=HOSTILE))
    drafts = Drafts.at_home()
    async with opened(workspace, opening=Opening(stored.id), drafts=drafts, size=WIDE) as chat:
        editor = chat.screen.composer.editor
        await check(chat, sent, "a stored chat")
        await chat.press("up")
        await chat.until(lambda: "\x1b]52" in editor.text)
        await check(chat, sent, "a question fetched with Up")
        await chat.press("enter")
        await chat.until(lambda: len(chat.conversation.steps) == 4)
        await check(chat, sent, "an answer")
        await chat.press("ctrl+e")
        await chat.until(lambda: "\x1b]52" in editor.text)
        await check(chat, sent, "a question to be changed")
        editor.put("@owned")
        await chat.see("folder")
        await check(chat, sent, "folders that are offered")
        await chat.press("tab")
        await chat.until(lambda: "@owned\x1b" in editor.text)
        await check(chat, sent, "a folder that was completed")
        editor.put("")
        await chat.at_once(events.Paste(HOSTILE))
        await check(chat, sent, "a paste")
        editor.put("")
        await chat.press("ctrl+l")
        await chat.see("another")
        await check(chat, sent, "the list of chats")
        listed = chat.app.screen
        assert isinstance(listed, ConversationsScreen)
        await chat.press("f2")
        await chat.see("New title")
        listed.field.value = HOSTILE
        await check(chat, sent, "a title to be changed")
        await chat.press("escape", "ctrl+d")
        await chat.see("Deleted")
        await check(chat, sent, "a chat that was deleted")
        await chat.press("escape")
        await chat.until(lambda: chat.app.screen is chat.screen)
        for key in ("f2", "ctrl+l", "ctrl+o", "ctrl+p", "f1"):
            await chat.press(key)
            await chat.until(lambda: chat.app.screen is not chat.screen)
            await check(chat, sent, key)
            await chat.at_once(events.Paste(HOSTILE))
            await check(chat, sent, f"a paste into {key}")
            await chat.press("escape")
            await chat.until(lambda: chat.app.screen is chat.screen)
        chat.screen.messages.say(HOSTILE)
        chat.app.notify(HOSTILE, markup=False)
        await check(chat, sent, "a message")
