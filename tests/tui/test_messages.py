"""Short messages: where they stand, how long, and that they cover nothing."""

from __future__ import annotations

from textual.geometry import Region
from textual.widgets._toast import Toast

from q35chat.tui.widgets.bars import Hints
from q35chat.tui.widgets.messages import MOST
from q35chat.tui.widgets.meters import MeterLine
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue
from tests.tui.support import NARROW, WIDE, Chat, opened

LONG = (
    "Asked the terminal to copy the answer; if pasting gives nothing, select with the mouse. " * 2
)


def shown_regions(chat: Chat) -> list[Region]:
    screen = chat.screen
    below = [screen.composer, screen.query_one(Hints), screen.transcript]
    if screen.has_class("-narrow"):
        below.append(screen.query_one(MeterLine))
    return [widget.region for widget in below]


async def test_a_message_covers_neither_composer_nor_meters_nor_conversation(chat: Chat) -> None:
    await chat.ask("hello")
    await chat.write("what I am writing")
    chat.screen.say(LONG)
    await chat.see("Asked the terminal to copy")
    for size in (WIDE, NARROW, (60, 20)):
        await chat.resized(*size)
        mine = chat.screen.messages.region
        assert mine.height >= 2
        assert not any(mine.overlaps(other) for other in shown_regions(chat))
        assert "what I am writing" in chat.flat
        assert not chat.app.screen.query(Toast)


async def test_the_newest_information_replaces_the_one_before_and_problems_stay(chat: Chat) -> None:
    chat.screen.say("the first")
    chat.screen.say("a problem", "error")
    chat.screen.say("the second")
    await chat.see("● the second")
    assert "✗ a problem" in chat.flat
    assert "the first" not in chat.flat
    for number in range(MOST + 2):
        chat.screen.say(f"problem {number}", "error")
    assert len(chat.screen.messages.said) == MOST


async def test_a_click_takes_messages_away(chat: Chat) -> None:
    chat.screen.say("something")
    await chat.see("● something")
    await chat.click("Messages")
    await chat.until(lambda: not chat.screen.messages.display)


async def test_a_message_is_text_and_never_markup(chat: Chat) -> None:
    chat.screen.say("[bold]x[/bold] [/nope] \x1b[31m")
    await chat.see("[bold]x[/bold] [/nope] ␛[31m")


async def test_a_dialog_says_its_messages_inside() -> None:
    workspace = ScriptedWorkspace()
    workspace.add("Norway", dialogue(2))
    async with opened(workspace) as chat:
        await chat.ask("the open one")
        await chat.press("ctrl+l")
        await chat.see("● the open one")
        chat.app.notify("something")
        await chat.see("● something")
        dialog = chat.app.screen.query_one(".dialog").region
        assert dialog.contains_region(chat.app.screen.query_one("Messages").region)


async def test_what_the_store_has_to_say_is_said_once() -> None:
    async with opened(ScriptedWorkspace(message="the store was set aside")) as chat:
        await chat.hear("the store was set aside")
        await chat.ask("hello")
        await chat.new()
        assert chat.said.count("the store was set aside") == 1


async def test_a_message_about_the_same_takes_the_place_of_the_older_one(chat: Chat) -> None:
    await chat.press(*"/think 0", "enter")
    await chat.see("✗ “0”: thinking takes 1 to 1,000,000 tokens; /think off turns it off")
    chat.screen.say("another problem", "error")
    await chat.press(*"/think off", "enter")
    await chat.see("● Thinking off")
    assert "“0”" not in chat.flat
    assert "✗ another problem" in chat.flat
    await chat.press(*"/think maybe", "enter")
    await chat.see("✗ “maybe” is not off, on or a number of tokens")
    assert "● Thinking off" not in chat.flat


async def test_what_was_said_before_a_turn_goes_when_it_begins_but_for_warnings(chat: Chat) -> None:
    chat.screen.say("demo answers from now on")
    chat.screen.say("a problem", "error")
    chat.app.notify("the store was moved", severity="warning")
    await chat.see("✗ a problem")
    await chat.ask("hello")
    assert [message.text for message in chat.screen.messages.said] == ["the store was moved"]
