"""Earlier questions: walked with Up through all chats, and searched."""

from __future__ import annotations

from textual import events

from q35chat.chat.values import Turn
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, box, opened


def asked_before(*texts: str) -> ScriptedWorkspace:
    """A workspace with a chat for each of these questions, the last one the latest."""
    workspace = ScriptedWorkspace()
    for number, text in enumerate(texts):
        workspace.add(f"chat {number}", [Turn("user", text)])
    return workspace


async def searching(chat: Chat, words: str = "") -> None:
    await chat.press("ctrl+r")
    await chat.see("Search your questions")
    await chat.press(*words)
    await chat.settled()


async def test_up_goes_through_this_chat_then_through_all_others_and_down_comes_back() -> None:
    async with opened(asked_before("oldest", "older")) as chat:
        await chat.ask("here")
        await chat.settled()
        seen = []
        for _ in range(4):
            await chat.press("up")
            seen.append(chat.written)
        assert seen == ["here", "older", "oldest", "oldest"]
        await chat.press("down", "down", "down")
        assert chat.written == ""


async def test_a_search_lists_questions_of_all_chats_and_enter_puts_one_into_the_message() -> None:
    async with opened(asked_before("How do TIDES work?", "Why is the sky blue?")) as chat:
        await searching(chat, "tides do")
        assert "sky" not in chat.flat
        await chat.press("enter")
        await chat.until(lambda: chat.written == "How do TIDES work?")
        assert not chat.conversation.steps


async def test_the_same_key_again_goes_further_back() -> None:
    async with opened(asked_before("one tide", "two tide", "three tide")) as chat:
        await searching(chat, "tide")
        await chat.press("ctrl+r", "ctrl+r", "enter")
        await chat.until(lambda: chat.written == "one tide")


async def test_a_draft_that_a_question_takes_the_place_of_comes_back_by_undoing() -> None:
    async with opened(asked_before("asked before")) as chat:
        await chat.write("half a thought")
        await searching(chat)
        await chat.press("enter")
        await chat.until(lambda: chat.written == "asked before")
        await chat.press("ctrl+z")
        assert chat.written == "half a thought"


async def test_letters_and_keys_of_one_burst_search_in_their_order(chat: Chat) -> None:
    await chat.ask("find this")
    await chat.ask("and not that")
    await searching(chat)
    await chat.at_once(*"this", "enter")
    await chat.until(lambda: chat.written == "find this")


async def test_a_question_that_was_pasted_is_no_command_when_it_comes_back(chat: Chat) -> None:
    await chat.at_once(events.Paste("/quit is a command"), "enter")
    await chat.until(lambda: len(chat.conversation.steps) == 2)
    await searching(chat)
    await chat.press("enter", "enter")
    await chat.until(lambda: len(chat.conversation.steps) == 4)
    assert chat.conversation.steps[2].turn.text == "/quit is a command"


async def test_a_search_by_its_command_begins_with_the_words_given() -> None:
    async with opened(asked_before("about tides", "about the sky")) as chat:
        await chat.press(*"/recall tides", "enter")
        await chat.until(lambda: len(chat.app.screen_stack) == 3)
        await chat.settled()
        assert box(chat).value == "tides"
        assert "sky" not in chat.flat
