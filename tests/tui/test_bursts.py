"""Letters and other keys in one burst, as a slow connection delivers them: in the order in which
they were pressed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import TextArea

from tests.doubles.scripted_exporter import ScriptedExporter
from tests.tui.setting_up import looked_up, setting_up
from tests.tui.support import box, list_of_chats, opened, picture_file


async def test_what_is_typed_after_enter_is_no_longer_sent_with_it() -> None:
    async with opened() as chat:
        await chat.at_once(*"hello", "enter", *"world")
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        assert chat.conversation.steps[0].turn.text == "hello"
        assert chat.screen.composer.editor.text == "world"


EDITS = {
    "the quick": [*"teh", "backspace", "backspace", *"he", " ", *"quick"],
    "hello": [*"junk", "ctrl+u", *"hello"],
    "abXc": [*"abc", "left", "X"],
    "junk hello": [*"junk", " ", *"it", "ctrl+w", *"hello"],
    "ab": ["b", "home", "a"],
    "aXb": [*"ab", "home", "right", "X"],
    "X": [*"abc", "ctrl+u", "X"],
    "axc": [*"abc", "left", "backspace", "x"],
}


@pytest.mark.parametrize("text", EDITS)
async def test_keys_in_the_composer_work_in_the_order_they_were_pressed(text: str) -> None:
    async with opened() as chat:
        await chat.at_once(*EDITS[text])
        assert chat.screen.composer.editor.text == text


@pytest.mark.parametrize("text", EDITS)
async def test_keys_in_a_search_work_in_the_order_they_were_pressed(text: str) -> None:
    async with opened() as chat:
        await list_of_chats(chat)
        await chat.at_once(*EDITS[text])
        assert box(chat).value == text


@pytest.mark.parametrize("text", EDITS)
async def test_keys_in_the_palette_work_in_the_order_they_were_pressed(text: str) -> None:
    async with opened() as chat:
        await chat.press("ctrl+p")
        await chat.see("Search for commands")
        await chat.at_once(*EDITS[text])
        assert box(chat).value == text


async def test_keys_in_the_settings_work_in_the_order_they_were_pressed() -> None:
    async with opened() as chat:
        await chat.press("f2")
        await chat.see("Temperature")
        await chat.at_once("0", ".", "8", "backspace", "5")
        assert box(chat).value == "0.5"
        prompt = chat.app.screen.query_one(TextArea)
        prompt.focus()
        await chat.at_once(*EDITS["the quick"])
        assert prompt.text == "the quick"


async def test_keys_in_the_setup_and_the_picker_work_in_the_order_they_were_pressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with setting_up(ScriptedExporter()) as chat:
        await looked_up(chat)
        box(chat).focus()
        await chat.at_once("end", "ctrl+u", *"abc", "left", "X")
        assert box(chat).value == "abXc"
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.see("Type a path")
        await chat.at_once(*"abc", "left", "X")
        assert box(chat).value == "abXc"


async def test_a_picture_pasted_before_enter_is_sent_and_one_taken_away_is_not(
    tmp_path: Path,
) -> None:
    for name in ("alpha.png", "beta.png"):
        picture_file(tmp_path, name)
    async with opened() as chat:
        first, second = (events.Paste(str(tmp_path / f"{name}.png")) for name in ("alpha", "beta"))
        await chat.at_once(first, second, "backspace", *"which?", "enter", *"and")
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        question = chat.conversation.steps[0].turn
        assert [picture.name for picture in question.attachments] == ["alpha.png"]


async def test_a_command_is_completed_and_run_whatever_follows_in_the_same_burst() -> None:
    async with opened() as chat:
        await chat.at_once(*"/thi", "tab", *"64", "enter", *"then this")
        await chat.until(lambda: chat.conversation.settings().thinking_budget == 64)
        assert chat.screen.composer.editor.text == "then this"
        await chat.at_once("ctrl+u", *"/th", "escape", *"ink off", "enter", "o", "k")
        await chat.until(lambda: not chat.conversation.settings().thinking)
        assert chat.screen.composer.editor.text == "ok"


async def test_a_command_typed_where_a_paste_was_taken_away_is_a_command() -> None:
    async with opened() as chat:
        await chat.at_once(events.Paste("some text"), "ctrl+u", *"/think off", "enter")
        await chat.until(lambda: not chat.conversation.settings().thinking)
        assert not chat.conversation.steps


async def test_a_command_that_leaves_the_program_from_its_own_key_leaves_it() -> None:
    async with opened() as chat:
        await chat.at_once(*"/quit", "enter", *"more")
        await chat.until(lambda: not chat.app.is_running)
