from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, OptionList

from q35chat.chat.values import TemplateOffers, Turn
from q35chat.errors import BundleError, StoreError
from q35chat.settings import Settings, load_settings
from q35chat.text import turn_count
from q35chat.tui.commands import COMMANDS
from q35chat.tui.screens.palette import Palette
from tests.doubles.scripted_backend import PATIENCE_S, Reply
from tests.doubles.scripted_exporter import ScriptedExporter
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace, dialogue
from tests.tui.support import NARROW, WIDE, Chat, list_of_chats, opened, picture_file


async def test_a_search_without_results_says_so(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press(*"zzz")
    await chat.see("nothing found")
    await chat.press("enter", "escape")
    assert len(chat.app.screen_stack) == 2


async def test_a_conversation_is_renamed(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press("f2")
    await chat.see("New title")
    assert "Enter keeps it · Esc goes back to the list" in chat.flat
    assert "Enter opens" not in chat.flat
    chat.app.screen.query_one(Input).value = "Pasta [red]at home[/red]"
    await chat.press("enter")
    await chat.see("Pasta [red]at home[/red]")
    assert "Cooking" not in chat.flat
    assert "Enter opens · F2 title" in chat.flat


def titles(chat: Chat) -> list[str]:
    """What the store lists."""
    return [item.title for item in chat.workspace.listed()]


async def test_a_deleted_chat_comes_back_until_the_list_is_left(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press("delete")
    await chat.see("Deleted “Cooking” · Ctrl+Z brings it back")
    assert "Cooking" not in titles(chat)
    await chat.press("ctrl+z")
    await chat.see("“Cooking” is back")
    assert "Cooking" in titles(chat)
    await chat.press("delete", "delete")
    await chat.see("Deleted “Binary search”")
    await chat.press("escape")
    folder = Path(chat.workspace._folder.name)
    await chat.until(lambda: not any(b"Cooking" in it.read_bytes() for it in folder.glob("*.db*")))
    await chat.press("ctrl+l")
    await chat.see("Norway")
    await chat.press("ctrl+z")
    await chat.see("Nothing was deleted here")


async def test_a_deletion_that_takes_long_holds_up_no_key(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    delete = type(chat.workspace).delete

    def slow(workspace: ScriptedWorkspace, session: str) -> None:
        begun.set()
        assert may_end.wait(PATIENCE_S)
        delete(workspace, session)

    monkeypatch.setattr(type(chat.workspace), "delete", slow)
    await list_of_chats(chat)
    await chat.press("delete", "escape")
    await chat.until(begun.is_set)
    await chat.press(*"abc")
    assert chat.written == "abc"
    may_end.set()


async def test_what_is_found_is_shown_and_opened_where_it_stands(chat: Chat) -> None:
    chat.workspace.add("Long", dialogue(40))
    await chat.press("ctrl+l")
    await chat.see("Long")
    await chat.press(*"number 17.")
    await chat.see("Answer number 17.")
    await chat.press("enter")
    await chat.see("Question number 18?")
    await chat.settled()
    transcript = chat.screen.transcript
    view = next(it for it in transcript.views if it.step.turn.text == "Answer number 17.")
    assert view.region.y <= transcript.region.y + 1
    assert not transcript.following


async def test_a_chat_is_tagged_pinned_and_found_by_its_tag(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press(*"nor", "f3")
    await chat.see("Tags, such as")
    await chat.press(*"trips,#far", "enter")
    await chat.see("#trips #far")
    await chat.press("f4")
    await chat.see("▲ Norway")
    await chat.press("ctrl+u", *"#far")
    await chat.until(lambda: "Cooking" not in chat.flat)
    await chat.see("Norway")
    await chat.press("ctrl+u")
    await chat.see("Cooking")
    lines = chat.text.splitlines()
    first = next(line for line in lines if "Norway" in line or "Cooking" in line)
    assert "Norway" in first


async def test_a_chat_is_listed_with_its_turns_its_model_and_its_slots(chat: Chat) -> None:
    await chat.ask("the open one")
    used = chat.conversation.used_slots
    await chat.press("ctrl+l")
    await chat.see(f"1 turn · Qwen3.5-0.8B · {used} slots")


async def test_settings_are_checked_and_saved_as_they_are_typed(chat: Chat) -> None:
    await chat.press("f2")
    await chat.see("Temperature")
    box = chat.app.screen.query_one("#temperature", Input)
    box.value = "0.7"
    await chat.until(lambda: chat.conversation.settings().sampling.temperature == 0.7)
    box.value = "hot"
    await chat.see("must be a number from 0 to 5")
    assert chat.conversation.settings().sampling.temperature == 0.7
    chat.app.screen.query_one("#seed", Input).value = "42"
    await chat.until(lambda: chat.conversation.settings().sampling.seed == 42)
    await chat.press("escape")
    assert len(chat.app.screen_stack) == 2


async def test_the_settings_offer_what_the_template_offers() -> None:
    offers = TemplateOffers(("high", "low"), preserves=True)
    workspace = ScriptedWorkspace(info=replace(MODEL, offers=offers))
    async with opened(workspace, size=(120, 60)) as chat:
        await chat.press("f2")
        await chat.see("high, low; empty is the template's own")
        chat.app.screen.query_one("#reasoning_effort", Input).value = "low"
        await chat.until(lambda: chat.conversation.settings().reasoning_effort == "low")
        chat.app.screen.query_one("#preserve_thinking", Input).value = "drop"
        await chat.until(lambda: chat.conversation.settings().preserve_thinking is False)


@pytest.mark.parametrize("key", ["escape", "f2"])
async def test_a_setting_that_was_not_taken_is_named_when_the_settings_close(
    chat: Chat, key: str
) -> None:
    await chat.press("f2")
    await chat.see("Temperature")
    chat.app.screen.query_one("#temperature", Input).value = "9"
    chat.app.screen.query_one("#top_p", Input).value = "x"
    await chat.see("not saved: must be from 0 to 5")
    chat.app.screen.query_one("#top_p", Input).value = "0.5"
    await chat.until(lambda: chat.conversation.settings().sampling.top_p == 0.5)
    await chat.press(key)
    await chat.see("✗ Not saved, the former value stays: Temperature must be from 0 to 5")
    assert "Top p" not in chat.flat


async def test_the_system_prompt_is_a_setting(chat: Chat) -> None:
    await chat.press("f2")
    await chat.see("SYSTEM PROMPT")
    chat.app.screen.query_one("#system_prompt").insert("Be brief.")  # type: ignore[attr-defined]
    await chat.until(lambda: chat.conversation.settings().system_prompt == "Be brief.")


async def test_a_chosen_theme_is_kept_for_the_next_start() -> None:
    async with opened() as chat:
        await chat.press("f2")
        await chat.see("THEME")
        chat.app.screen.query_one("#theme").value = "q35-light"  # type: ignore[attr-defined]
        await chat.until(lambda: chat.app.theme == "q35-light")
    assert load_settings().theme == "q35-light"


async def test_help_names_every_command_with_its_key() -> None:
    async with opened(size=(120, 100)) as chat:
        await chat.press("f1")
        await chat.see("Keys and commands")
        await chat.settled()
        page = chat.flat.replace("│ │", "")
        for command in COMMANDS:
            assert command.help[:30] in page
            assert not command.slash or f"/{command.slash}" in page
        for name in ("[", "branch_back", "drop_oldest", "copy_code"):
            assert name not in page.replace("[shortcuts]", "")
        assert "Alt+R /regenerate" in page
        assert "F5–F8 Take a way on" in page
        await chat.press("f1")
        assert len(chat.app.screen_stack) == 2


async def test_keys_can_be_changed_in_the_settings_file() -> None:
    settings = Settings(shortcuts={"new": "f9", "nonsense": "f10"})
    async with opened(settings=settings, size=(120, 100)) as chat:
        await chat.hear("there is no command “nonsense”")
        first = chat.conversation.id
        await chat.press("ctrl+n")
        assert not chat.screen.session.opening
        await chat.app.workers.wait_for_complete()
        assert list(chat.workspace.conversations) == [first]
        await chat.press("f9")
        await chat.until(lambda: chat.conversation.id != first)
        await chat.press("f1")
        await chat.see("F9 /new")


async def test_a_file_that_would_never_end_is_not_read_by_the_picker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alpha.png")
    picture_file(tmp_path, "beta.png")
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.until(lambda: "▀▀▀" in chat.text)
        assert "beta.png" in chat.text
        assert "alpha.png" not in chat.text


async def test_export_says_where_the_file_is(chat: Chat, tmp_path: Path) -> None:
    await chat.ask("hello")
    await chat.press(*f"/export {tmp_path}", "enter")
    await chat.hear(f"Written to {tmp_path}")
    [written] = tmp_path.rglob("*.md")
    assert "hello" in written.read_text("utf-8")


async def test_copying_is_honest_about_what_a_terminal_may_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    async with opened() as chat:
        written: list[str] = []
        monkeypatch.setattr(chat.app._driver, "write", written.append)
        await chat.press("f3")
        await chat.hear("There is no answer to copy yet")
        await chat.ask("hello")
        await chat.press("f3")
        await chat.hear("Asked the terminal to copy the answer")
        assert any("\x1b]52;c;" in text for text in written)
        await chat.press("f4")
        await chat.hear("There is no code block to copy yet")


async def test_one_turn_is_counted_as_one() -> None:
    workspace = ScriptedWorkspace()
    workspace.add("Short", [Turn("user", "q")])
    async with opened(workspace) as chat:
        await chat.press("ctrl+l")
        await chat.see("1 turn ")
        await chat.press("delete")
        await chat.hear("Deleted “Short” · Ctrl+Z brings it back")
        await chat.press("ctrl+z")
        await chat.see("1 turn ")


async def test_a_chat_that_was_begun_from_a_summary_says_so_as_the_command_line_does() -> None:
    workspace = ScriptedWorkspace()
    workspace.add("Continued", summary="They spoke of Norway.")
    async with opened(workspace) as chat:
        await chat.press("ctrl+l")
        await chat.see(turn_count(0))


async def test_a_setting_that_cannot_be_saved_is_said_in_the_dialog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise StoreError("the disk is full; free some space")

    async with opened() as chat:
        await chat.press("f2")
        await chat.see("Temperature")
        monkeypatch.setattr(chat.conversation, "change_settings", refuse)
        chat.app.screen.query_one("#temperature", Input).value = "0.7"
        await chat.see("✗ the disk is full; free some space")
        await chat.press("escape")
        await chat.press("ctrl+t")
        await chat.see("✗ the disk is full; free some space")


@pytest.mark.parametrize(("key", "words"), [("ctrl+l", "Packing list"), ("f4", "Copy a code")])
async def test_rows_of_a_list_follow_the_width_of_the_screen(key: str, words: str) -> None:
    code = "```python\nx = 1\n```\n\n```sh\nls\n```\n"
    workspace = ScriptedWorkspace([Reply(code)])
    workspace.add("Packing list for Norway", dialogue(2))
    async with opened(workspace) as chat:
        await chat.ask("hello")
        await chat.press(key)
        await chat.see(words)
        await chat.pilot.resize_terminal(*NARROW)
        narrow = await chat.settled()
        await chat.press("escape", key)
        await chat.see(words)
        assert await chat.settled() == narrow


async def test_where_no_model_could_be_loaded_nothing_says_that_one_is_loading() -> None:
    workspace = ScriptedWorkspace(load_error=BundleError("out has no manifest"))
    for size in (WIDE, NARROW):
        async with opened(workspace, size=size, loaded=False) as chat:
            await chat.see("out has no manifest")
            await chat.see("There is no model yet. You can write already.")
            assert "loading" not in chat.text
            await chat.press("ctrl+n")
            await chat.hear("There is no model yet; the panel says why")


async def test_no_palette_without_commands_opens_over_a_dialog(chat: Chat) -> None:
    chat.app.exporter = ScriptedExporter()
    for key, words in (
        ("ctrl+l", "Search"), ("f2", "Temperature"), ("f1", "Keys and commands"),
        ("ctrl+o", "Attach a picture"), ("f9", "Get a real model"),
    ):  # fmt: skip
        await chat.press(key)
        await chat.see(words)
        await chat.press("ctrl+p")
        await chat.settled()
        assert len(chat.app.screen_stack) == 3
        assert not chat.app.messages
        await chat.press("escape")
    await chat.press("ctrl+p")
    await chat.see("Search for commands")


async def test_a_palette_that_is_told_to_close_again_leaves_the_chat_below(chat: Chat) -> None:
    for ways in (("escape", "escape"), ("click", "escape"), ("click", "click", "click")):
        await chat.press("ctrl+p")
        await chat.see("Search for commands")
        palette = chat.app.screen
        assert isinstance(palette, Palette)
        for way in ways:
            if way == "escape":
                palette._action_escape()
            else:
                palette.call_later(palette._on_click, outside(palette))
        await chat.until(lambda: chat.app.screen is chat.screen)
        await chat.settled()
        assert len(chat.app.screen_stack) == 2
    await chat.ask("still there?")


def outside(palette: Palette) -> events.Click:
    """A click beside the box."""
    at = palette.size.width - 1, palette.size.height - 1
    return events.Click(palette, *at, 0, 0, 1, False, False, False, *at)


@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_a_page_of_a_list_without_room_for_a_line_goes_nowhere(chat: Chat, key: str) -> None:
    await chat.press("ctrl+p")
    await chat.see("Search for commands")
    await chat.press("down", "down")
    await chat.resized(5, 2)
    await chat.press(key, key)
    await chat.press("escape")
    await list_of_chats_without_room(chat, key)
    await chat.resized(*WIDE)
    await chat.ask("still there?")


async def list_of_chats_without_room(chat: Chat, key: str) -> None:
    """Open the list, press a key of its lines, and close it."""
    await chat.press("ctrl+l")
    await chat.until(lambda: len(chat.app.screen_stack) == 3)
    for options in chat.app.screen.query(OptionList):
        options.highlighted = 0
        await options.run_action("page_down" if key == "pagedown" else "page_up")
    await chat.press("escape")


async def test_the_open_chat_can_be_deleted_and_a_new_one_takes_its_place(chat: Chat) -> None:
    await list_of_chats(chat)
    gone = chat.conversation
    await chat.press(*"the open", "delete")
    await chat.until(lambda: chat.screen.session.available not in {None, gone})
    await chat.press("escape")
    assert gone.id not in {summary.id for summary in chat.workspace.listed()}
    assert not chat.conversation.steps
    await chat.ask("hello again")
    assert len(chat.workspace.listed()) == 4
