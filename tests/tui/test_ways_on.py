"""What is offered when something does not fit: only what helps, until one of it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from q35chat.chat.service import Forecast
from q35chat.errors import UsageError
from q35chat.tui.widgets.composer import forecast_lines
from tests.doubles.scripted_backend import Reply
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace
from tests.tui.on_the_way import open_long, ways
from tests.tui.support import NARROW, Chat, opened, picture_file

TINY = replace(MODEL, capacity=64)


async def refused(chat: Chat, words: int) -> None:
    """Send a message that does not fit."""
    await chat.write("word " * words)
    await chat.see("✗ this turn needs")
    await chat.press("enter")
    await chat.see("This turn does not fit")


def told(chat: Chat) -> str:
    """What the panel says."""
    return str(chat.screen.query_one("#panel-text", Static).content)


async def test_in_an_empty_chat_a_message_that_is_too_long_is_told_what_would_help() -> None:
    async with opened(ScriptedWorkspace(info=TINY), size=NARROW) as chat:
        await refused(chat, 60)
        assert "help: a shorter message, or a bundle exported with a larger" in told(chat)
        assert not chat.screen.panel.ways
        assert "F5" not in chat.flat
        await chat.see("Esc close")
        await chat.press("f5", "f6", "f7")
        assert chat.screen.panel.display
        await chat.press("escape")
        assert not chat.screen.panel.display


async def test_a_smaller_picture_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    async with opened(ScriptedWorkspace(info=TINY)) as chat:
        await chat.attach(picture_file(tmp_path))
        await refused(chat, 60)
        assert "a shorter message, a smaller picture, or a bundle" in told(chat)


async def test_what_fits_no_chat_is_not_offered_a_new_one() -> None:
    async with opened(ScriptedWorkspace(info=TINY)) as chat:
        await open_long(chat, 40)
        await refused(chat, 60)
        assert "What would help" in told(chat)
        assert not chat.screen.panel.ways


async def test_what_fits_a_new_chat_is_offered_one_where_leaving_out_is_not_enough() -> None:
    async with opened(ScriptedWorkspace()) as chat:
        await open_long(chat, 2_000)
        chat.conversation.fill(60)
        chat.conversation.fill(2_000, answer=2)
        await refused(chat, 100)
        assert ways(chat) == [
            "New chat with this message",
            "New chat from a summary that the model writes first",
            "Export to Markdown",
        ]


async def test_a_chat_that_starts_from_a_summary_offers_one_without_it() -> None:
    workspace = ScriptedWorkspace()
    async with opened(workspace) as chat:
        begun = workspace.add("Continued", summary="They spoke of Norway. " * 360)
        await chat.open(begun)
        await refused(chat, 60)
        assert ways(chat) == ["New chat with this message"]


async def test_a_way_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pairs: int) -> None:
        raise UsageError(f"{pairs} cannot be left out now")

    async with opened() as chat:
        await open_long(chat, 1_980)
        await refused(chat, 60)
        offered = ways(chat)
        assert len(offered) == 4
        monkeypatch.setattr(chat.conversation, "drop_oldest", refuse)
        await chat.press("f6")
        await chat.see("✗ 1 cannot be left out now")
        assert chat.screen.panel.display
        assert ways(chat) == offered
        assert len(chat.conversation.steps) == 6


async def test_an_export_leaves_the_ways_on() -> None:
    async with opened(ScriptedWorkspace([Reply("x", finish="capacity")])) as chat:
        await chat.ask("hello")
        await chat.see("F7 Export to Markdown")
        await chat.press("f7")
        await chat.see("● Written to")
        assert "F5 New chat" in chat.flat


async def test_what_was_left_out_is_still_said_when_its_message_is_sent() -> None:
    async with opened(ScriptedWorkspace([Reply("now it fits")])) as chat:
        await open_long(chat, 2_000)
        await refused(chat, 60)
        await chat.press("f6")
        await chat.see("now it fits")
        assert "Left out “Question number 1?”" in chat.flat


async def test_the_forecast_is_whole_at_every_width(chat: Chat, tmp_path: Path) -> None:
    await chat.attach(picture_file(tmp_path, size=(640, 640)))
    await chat.write("hello")
    await chat.see("needs 413 slots (400 picture)")
    for width in range(60, 131, 5):
        shown = await chat.resized(width, 30)
        [line] = [line for line in shown.splitlines() if "needs 413 slots (400 picture)" in line]
        assert "1,635 left" in line


async def test_a_refusal_that_is_longer_than_the_line_is_wrapped() -> None:
    async with opened(size=(60, 24)) as chat:
        await open_long(chat, 2_000)
        await chat.write("word " * 60)
        await chat.see("✗ this turn needs 86 slots")
        await chat.until(lambda: "48 are free" in chat.flat.replace("│ │", "").replace("  ", " "))


def test_a_forecast_says_what_of_it_is_the_summary() -> None:
    fits = Forecast(86, 0, 0, 100, fits=True, summary_slots=70)
    assert "this turn needs 86 slots (70 summary)" in forecast_lines(fits)[0].plain
    both = replace(fits, image_slots=4)
    assert "86 slots (4 picture, 70 summary)" in forecast_lines(both)[0].plain
    assert forecast_lines(both)[-1].plain == "needs 86 slots · 100 left"
