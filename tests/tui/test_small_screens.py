"""A terminal of 40 columns and 12 rows: nothing that is needed is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from q35chat.chat.service import ListedConversation
from q35chat.tui.chat.meter import Capacity, Reading, WaitProgress
from q35chat.tui.screens.choice import Item, rows
from q35chat.tui.screens.conversations import rows_of
from q35chat.tui.widgets import meters
from q35chat.tui.widgets.bars import Hints
from q35chat.tui.widgets.chips import Chip
from q35chat.tui.widgets.pressable import Foot
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.scenes import SCENES, played
from tests.tui.support import NARROW, Chat, list_of_chats, opened, picture_file

SMALLEST = (40, 12)


@pytest.mark.parametrize("name", ["full", "load_failed", "file_too_large", "editing", "too_large"])
async def test_the_message_is_whole_below_whatever_is_said(name: str) -> None:
    async with played(SCENES[name]) as chat:
        await chat.resized(*SMALLEST)
        composer = chat.screen.composer
        assert composer.region.bottom == chat.screen.query_one(Hints).region.y
        assert composer.region.y > chat.screen.panel.region.y
        assert composer.editor.cursor_screen_offset.y < composer.region.bottom - 1


DIALOGS = (
    "settings", "sessions", "personas", "models", "help_page", "picker", "code_blocks",
    "setup_form", "setup_done",
)  # fmt: skip


@pytest.mark.parametrize("name", DIALOGS)
async def test_the_last_line_of_a_dialog_says_how_to_close_it(name: str) -> None:
    async with played(SCENES[name]) as chat:
        await chat.resized(*SMALLEST)
        dialog = chat.app.screen.query(".dialog").first()
        foot = chat.app.screen.query_one(Foot)
        assert foot.region.height == 1
        assert foot.region.bottom == dialog.region.bottom - 1
        assert "Esc close" in chat.flat
        lists = [it for it in dialog.query(OptionList) if it.display]
        assert all(it.region.height >= min(3, it.option_count) for it in lists)


async def test_the_settings_have_a_field_and_its_help(chat: Chat) -> None:
    await chat.press("f2")
    await chat.see("Temperature")
    await chat.resized(*SMALLEST)
    await chat.see("the k likeliest tokens; 0 is off")


async def test_what_is_chosen_stays_in_sight_when_the_terminal_gets_smaller(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press("down", "down", "down")
    await chat.settled()
    await chat.resized(*SMALLEST)
    await chat.see("● the open one")


async def test_a_long_message_keeps_its_cursor_in_sight_when_rows_go(chat: Chat) -> None:
    await chat.write("word " * 200)
    await chat.resized(*NARROW)
    editor = chat.screen.composer.editor
    assert editor.region.contains_point(editor.cursor_screen_offset)


async def test_the_empty_message_says_no_more_than_fits(chat: Chat) -> None:
    await chat.see("Ask anything · @ attaches a file · / for commands")
    await chat.resized(*SMALLEST)
    await chat.see("Ask anything · / for commands")
    assert "@ attaches" not in chat.flat


async def test_the_cross_of_an_attachment_is_there_whatever_its_name(chat: Chat) -> None:
    await chat.attach(picture_file(Path.cwd(), "a-very-long-name-of-a-picture.png", (640, 480)))
    await chat.resized(*SMALLEST)
    await chat.see("300 slots ×")
    await chat.click(Chip)
    await chat.until(lambda: not chat.screen.composer.chips.chips)


async def test_what_is_read_is_told_in_the_line_of_the_meters() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply(reading_gate=gate)])) as chat:
        await chat.send("a question that is read for a while")
        gate.let(1)
        await chat.until(lambda: chat.screen.session.meter.reading().progress is not None)
        await chat.resized(*SMALLEST)
        await chat.see("reading")
        gate.open()
        await chat.idle()


def test_a_progress_that_has_no_room_for_all_of_it_says_how_far_it_is() -> None:
    progress = WaitProgress("reading", 25, 100, 812.0, 0.05)
    line = meters.line(Reading(Capacity(2048, 20, 33), progress=progress), 36).plain
    assert line.endswith("reading 25%")


def test_slots_that_nobody_knows_yet_are_not_counted() -> None:
    assert meters.capacity_legend(Reading()).plain.strip() == "no model yet"


@pytest.mark.parametrize("width", [32, 68])
def test_every_fact_of_a_model_is_shown(width: int) -> None:
    facts = "Qwen3.5-35B-A3B · cpu · int8 keeps 99 % · 16,384 slots · 36.3 GB"
    text = "\n".join(str(it) for it in rows([Item("large", facts), Item("demo", "demo")], width))
    assert all(fact in text for fact in facts.split(" · "))
    assert max(map(len, text.splitlines())) <= width


def test_few_facts_stand_beside_the_name() -> None:
    found = [str(it) for it in rows([Item("coder", "thinks", in_use=True), Item("a", "b")], 40)]
    assert found == ["● coder  thinks", "  a      b"]


def test_tags_give_way_to_the_age_of_a_chat() -> None:
    summary = ListedConversation("c1", "Norway", 0.0, 3, tags=("#trips", "#somewhere-else"))
    first = str(rows_of(summary, 7_200.0, 32, is_open=False)).splitlines()[0]
    assert first.endswith("2 h ago")
