"""Scrolling, following, history windows, long answers."""

from __future__ import annotations

from textual.timer import Timer

from q35chat.chat.service import ModelInfo
from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue
from tests.tui.support import Chat, opened

ROOMY = ModelInfo("m", "npu", "fp16", "d", 100_000, False)


async def open_dialogue(chat: Chat, pairs: int) -> None:
    conversation = chat.workspace.add("Long", dialogue(pairs))
    conversation.fill(100)
    await chat.open(conversation)
    await chat.see(f"Answer number {pairs}.")


async def start(chat: Chat, gate: Gate, tokens: int) -> None:
    await chat.send("go")
    await more(chat, gate, tokens)


async def more(chat: Chat, gate: Gate, tokens: int) -> None:
    """Let tokens through and wait until they are laid out."""
    goal = chat.screen.session.meter.made + tokens if chat.screen.session.running else tokens
    gate.let(tokens)
    await chat.until(lambda: chat.screen.session.meter.made >= goal)
    for _ in range(3):
        await chat.pilot.pause()


async def test_a_reader_who_scrolled_up_is_never_pulled_down_until_he_comes_back_to_the_end() -> (
    None
):
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("line\n\n" * 400, gate=gate)])) as chat:
        await open_dialogue(chat, 8)
        await start(chat, gate, 60)
        transcript = chat.screen.transcript
        await chat.press("pageup")
        await chat.until(lambda: not transcript.following)
        place = transcript.scroll_y
        await more(chat, gate, 60)
        assert transcript.scroll_y == place
        assert "↓ new text below" in chat.flat
        while not transcript.following:
            await chat.press("pagedown")
        await more(chat, gate, 60)
        await chat.until(lambda: transcript.scroll_y >= transcript.max_scroll_y)
        await chat.press("pageup", "pageup")
        await chat.until(lambda: not transcript.following)
        place = transcript.scroll_y
        gate.open()
        await chat.idle()
        assert transcript.scroll_y == place
        await chat.press("ctrl+end")
        await chat.until(lambda: transcript.following)
        await chat.until(lambda: transcript.scroll_y >= transcript.max_scroll_y)


async def test_a_short_conversation_cannot_be_scrolled_out_of_following(chat: Chat) -> None:
    await chat.ask("hello")
    await chat.press("pageup", "pagedown")
    assert chat.screen.transcript.following
    assert "hello" in chat.flat


async def test_a_thousand_turns_mount_a_bounded_window(chat: Chat) -> None:
    await open_dialogue(chat, 500)
    transcript = chat.screen.transcript
    assert len(transcript.views) == 12
    assert transcript.hidden_before == 988
    widgets = len(list(chat.screen.walk_children()))
    for _ in range(5):
        await chat.press("ctrl+home")
        await chat.pilot.pause()
    assert len(transcript.views) == 36
    assert transcript.hidden_after == 36
    assert len(list(chat.screen.walk_children())) < widgets + 24 * 10


async def test_earlier_turns_load_without_moving_what_is_read(chat: Chat) -> None:
    await open_dialogue(chat, 100)
    transcript = chat.screen.transcript
    while transcript.scroll_y > 0:
        await chat.press("pageup")
    await chat.see("↑ 188 earlier turns")
    await chat.see("Question number 95?")
    await chat.press("pageup")
    await chat.until(lambda: transcript.hidden_before == 176)
    await chat.see("Question number 95?")
    await chat.press("pageup")
    await chat.see("Answer number 92.")


async def test_the_end_comes_back_after_reading_the_beginning(chat: Chat) -> None:
    await open_dialogue(chat, 100)
    for _ in range(5):
        await chat.press("ctrl+home")
    await chat.until(lambda: chat.screen.transcript.hidden_after > 0)
    await chat.press("ctrl+end")
    await chat.see("Answer number 100.")
    assert chat.screen.transcript.hidden_after == 0


async def test_sending_from_the_middle_of_the_history_shows_the_new_turn() -> None:
    async with opened(ScriptedWorkspace([Reply("fresh words")], info=ROOMY)) as chat:
        await open_dialogue(chat, 100)
        for _ in range(5):
            await chat.press("ctrl+home")
        await chat.until(lambda: chat.screen.transcript.hidden_after > 0)
        await chat.ask("and now?")
        await chat.see("fresh words")


async def test_many_turns_in_one_sitting_stay_bounded() -> None:
    async with opened(ScriptedWorkspace([Reply("ok")], info=ROOMY)) as chat:
        await open_dialogue(chat, 30)
        await chat.press("ctrl+home", "ctrl+home")
        await chat.until(lambda: len(chat.screen.transcript.views) == 36)
        await chat.press("ctrl+end")
        await chat.ask("one more")
        await chat.ask("and another")
        assert len(chat.conversation.steps) == 64
        assert len(chat.screen.transcript.views) == 36
        assert chat.screen.transcript.hidden_after == 0


async def test_the_scroll_bar_stands_at_the_end_when_a_panel_takes_room_from_the_end() -> None:
    workspace = ScriptedWorkspace([Reply("And so it went on. " * 30, finish="capacity")])
    stored = workspace.add("A long story", dialogue(30))
    stored.fill(1_920)
    async with opened(workspace, opening=Opening(stored.id)) as chat:
        await chat.ask("Go on.")
        await chat.see("Capacity reached")
        shown = await chat.settled()
        chat.screen.transcript.vertical_scrollbar.refresh()
        assert await chat.settled() == shown


def ticking(chat: Chat) -> list[Timer]:
    """What will wake the application up."""
    return [
        timer
        for node in [chat.app, *chat.app.screen_stack, *chat.screen.walk_children()]
        for timer in node._timers
        if timer._active.is_set() and timer._task is not None
    ]


async def test_nothing_ticks_while_idle(chat: Chat) -> None:
    await chat.ask("hello")
    await chat.write("draft")
    await chat.until(lambda: "this turn needs" in chat.flat)
    await chat.until(lambda: not ticking(chat))  # what ticks once may still be about to


async def test_how_many_tokens_were_thought_stays_after_a_retry_and_another_opening() -> None:
    async with opened(ScriptedWorkspace([Reply("Yes.", "Let me see. " * 5)])) as chat:
        await chat.ask("Is it?")
        await chat.see("▸ thought · 15 tokens")
        await chat.press("alt+r")
        await chat.until(lambda: chat.conversation.steps[-1].branches == 2)
        await chat.idle()
        await chat.see("▸ thought · 15 tokens")
        again = chat.conversation
        await chat.new()
        await chat.open(again)
        await chat.see("▸ thought · 15 tokens")
