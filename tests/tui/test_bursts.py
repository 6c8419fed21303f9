"""Letters and other keys in one burst, as a slow connection delivers them: in the order in which
they were pressed.
"""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import pytest
from textual import events
from textual.widgets import TextArea

from q35chat.tui.screens.help import HelpScreen
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_exporter import ScriptedExporter
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.setting_up import looked_up, setting_up
from tests.tui.support import Chat, box, opened, picture_file


async def test_what_is_typed_after_enter_is_no_longer_sent_with_it(chat: Chat) -> None:
    await chat.at_once(*"hello", "enter", *"world")
    await chat.sent("hello")
    assert chat.written == "world"


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


async def test_keys_in_the_composer_work_in_the_order_they_were_pressed(chat: Chat) -> None:
    for text, keys in EDITS.items():
        chat.screen.composer.put("")
        await chat.at_once(*keys)
        assert chat.written == text


@pytest.mark.parametrize(("key", "words"), [("ctrl+l", "Search titles"), ("ctrl+p", "Search for")])
async def test_keys_in_a_search_work_in_the_order_they_were_pressed(
    chat: Chat, key: str, words: str
) -> None:
    await chat.press(key)
    await chat.see(words)
    for text, keys in EDITS.items():
        box(chat).value = ""
        await chat.at_once(*keys)
        assert box(chat).value == text


async def test_keys_in_the_settings_work_in_the_order_they_were_pressed(chat: Chat) -> None:
    await chat.press("f2")
    await chat.see("Temperature")
    await chat.at_once("0", ".", "8", "backspace", "5")
    assert box(chat).value == "0.5"
    prompt = chat.app.screen.query_one(TextArea)
    prompt.focus()
    await chat.at_once(*EDITS["the quick"])
    assert prompt.text == "the quick"


async def test_keys_in_the_setup_and_the_picker_work_in_the_order_they_were_pressed() -> None:
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


async def test_a_command_is_completed_and_run_whatever_follows_in_the_same_burst(
    chat: Chat,
) -> None:
    await chat.at_once(*"/thi", "tab", *"64", "enter", *"then this")
    await chat.until(lambda: chat.conversation.settings().thinking_budget == 64)
    assert chat.written == "then this"
    await chat.at_once("ctrl+u", *"/th", "escape", *"ink off", "enter", "o", "k")
    await chat.until(lambda: not chat.conversation.settings().thinking)
    assert chat.written == "ok"


async def test_a_command_typed_where_a_paste_was_taken_away_is_a_command(chat: Chat) -> None:
    await chat.at_once(events.Paste("some text"), "ctrl+u", *"/think off", "enter")
    await chat.until(lambda: not chat.conversation.settings().thinking)
    assert not chat.conversation.steps


async def test_a_command_that_leaves_the_program_from_its_own_key_leaves_it(chat: Chat) -> None:
    await chat.at_once(*"/quit", "enter", *"more")
    await chat.until(lambda: not chat.app.is_running)


OPENING = ("f1", "f2", "f4", "f9", "ctrl+l", "ctrl+o", "ctrl+p")
FOLLOWING = ("escape", "f1", "f9", "enter", "tab")


async def closed(chat: Chat) -> None:
    """Leave whatever is open."""
    await chat.pilot.pause()
    while len(chat.app.screen_stack) > 2:
        await chat.press("escape")
        assert chat.app.is_running
    await chat.until(lambda: not chat.screen.session.loading)


@pytest.mark.parametrize("turns", [0, 2, 12])
async def test_any_key_may_come_while_a_screen_is_being_opened(turns: int) -> None:
    async with opened(ScriptedWorkspace([Reply("```\na\n```\n```\nb\n```\n")])) as chat:
        chat.app.exporter = ScriptedExporter()
        await chat.ask("code")
        for opening, following in product(OPENING, FOLLOWING):
            chat.app.post_message(events.Key(opening, None))
            for _ in range(turns):  # of the loop: as far as the screen has come by then
                await asyncio.sleep(0)
            await chat.at_once(following)
            assert chat.app.is_running, (opening, following)
            await closed(chat)


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_a_key_pressed_before_a_screen_is_opened_is_none_of_that_screen(turns: int) -> None:
    async with opened(ScriptedWorkspace([Reply("```\na\n```\n```\nb\n```\n")])) as chat:
        chat.app.exporter = ScriptedExporter()
        await chat.ask("code")
        for before, opening in product(("escape", "enter", "tab"), OPENING):
            chat.app.post_message(events.Key(before, None))
            for _ in range(turns):
                await asyncio.sleep(0)
            await chat.at_once(opening)
            await chat.settled()
            assert chat.app.is_running, (before, opening)
            assert len(chat.app.screen_stack) == 3, (before, opening)
            await closed(chat)


async def test_a_question_may_be_answered_before_it_is_on_screen() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c", gate=gate)])) as chat:
        await chat.send("go")
        await chat.until(lambda: chat.screen.session.running)
        for key in ("n", "escape", "enter", "tab"):
            await chat.at_once("ctrl+q", key)
            assert chat.app.is_running
            await closed(chat)
        await chat.at_once("ctrl+q", "y")
        await chat.until(lambda: not chat.app.is_running)
        assert chat.conversation.cancels == 1


async def test_a_dialog_closes_once_however_often_it_is_told_to(chat: Chat) -> None:
    chat.app.push_screen(HelpScreen(chat.app.keymap))
    dialog = chat.app.screen
    assert isinstance(dialog, HelpScreen)
    for _ in range(3):
        dialog.dismiss()
    await chat.pilot.pause()
    dialog.dismiss()
    await chat.pilot.pause()
    assert chat.app.screen is chat.screen
