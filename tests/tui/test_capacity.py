from __future__ import annotations

from q35chat.tui.meter import Capacity, Reading
from q35chat.tui.widgets.capacity_bar import FREE, TURN, USED, bar_cells, bar_content
from q35chat.tui.widgets.meter_line import line
from tests.doubles.scripted_workspace import Gate, Reply, ScriptedWorkspace, dialogue
from tests.tui.support import NARROW, Chat, opened


async def open_long(chat: Chat, used: int) -> None:
    conversation = chat.workspace.add("Long story", dialogue(3))
    conversation.used = used
    chat.screen.open_conversation(conversation.id)
    await chat.until(lambda: chat.screen.conversation is conversation)
    await chat.pilot.pause()


async def test_the_forecast_stands_under_the_text_while_typing() -> None:
    async with opened() as chat:
        await chat.press(*"hello there")
        await chat.see("this turn needs 14 slots · 2,034 left for the answer")
        assert "14 next turn" in " ".join(chat.text.split())


async def test_a_turn_that_does_not_fit_is_refused_with_numbers_and_kept() -> None:
    async with opened() as chat:
        await open_long(chat, 2_000)
        await chat.write("word " * 60)
        await chat.see("✗ this turn needs 86 slots")
        await chat.press("enter")
        await chat.see("This turn does not fit")
        assert chat.screen.composer.editor.text == "word " * 60
        assert len(chat.conversation.history) == 6


async def test_at_ninety_percent_a_quiet_line_warns() -> None:
    async with opened() as chat:
        await open_long(chat, 1_800)
        assert "of the capacity is used" not in chat.flat
        await open_long(chat, 1_870)
        assert "▲ 91% of the capacity is used · 178 slots are left" in chat.flat


async def test_the_meter_moves_while_tokens_come() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c d " * 40, gate=gate)])) as chat:
        await chat.write("go")
        await chat.press("enter")
        seen: list[int] = []
        for _ in range(3):
            gate.let(10)
            await chat.made(10 * len(seen) + 10)
            seen.append(chat.screen.meter.capacity.used)
        assert seen[1] - seen[0] == 10
        assert seen[2] - seen[1] == 10
        assert f"{chat.screen.meter.capacity.free:,} free of 2,048" in chat.text
        gate.open()
        await chat.idle()


async def test_at_capacity_the_answer_stays_and_the_ways_on_have_keys() -> None:
    replies = [Reply("so far so good", finish="capacity"), Reply(" and on")]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await open_long(chat, 1_900)
        await chat.ask("tell me more")
        await chat.see("Capacity reached")
        assert "so far so good" in chat.flat
        assert "▲ capacity reached" in chat.flat
        await chat.press("f6")
        await chat.hear("Left out “Question number 1?”")
        assert [step.left_out for step in chat.conversation.steps[:4]] == [True, True, False, False]
        await chat.press("ctrl+g")
        await chat.see("so far so good and on")


async def test_at_capacity_a_summary_can_start_the_next_conversation() -> None:
    replies = [Reply("so far", finish="capacity"), Reply("in short: hello")]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await chat.ask("hello")
        first = chat.conversation.id
        await chat.see("F6 New conversation from a summary")
        await chat.press("f6")
        await chat.until(lambda: chat.conversation.id != first)
        assert chat.conversation.settings().system_prompt == "a summary"
        assert len(chat.workspace.conversations[first].history) == 2


async def test_at_capacity_f5_starts_a_new_conversation() -> None:
    async with opened(ScriptedWorkspace([Reply("x", finish="capacity")])) as chat:
        await chat.ask("hello")
        first = chat.conversation.id
        await chat.see("F5 New conversation")
        await chat.press("f5")
        await chat.until(lambda: chat.conversation.id != first)
        assert not chat.screen.panel.display


async def test_typing_never_chooses_a_way_on() -> None:
    async with opened(ScriptedWorkspace([Reply("x", finish="capacity")])) as chat:
        await chat.ask("hello")
        await chat.see("Capacity reached")
        await chat.press(*"new drop export")
        assert chat.screen.panel.display
        assert chat.screen.composer.editor.text == "new drop export"


async def test_narrow_screens_have_the_meters_on_one_line() -> None:
    async with opened(ScriptedWorkspace([Reply("a b c d " * 9)]), size=NARROW) as chat:
        await chat.ask("hello")
        assert "1,999 free" not in chat.flat
        assert "2,017 free" in chat.flat
        assert "18.5 tok/s" in chat.flat
        assert "p50 54 p95 54 ms" in chat.flat


async def test_a_resize_moves_the_meters_to_the_side_and_back() -> None:
    async with opened(size=NARROW) as chat:
        await chat.ask("hello")
        assert "STEP LATENCY" not in chat.text
        await chat.pilot.resize_terminal(120, 36)
        await chat.until(lambda: "STEP LATENCY" in chat.text and "4 tokens" in chat.text)
        await chat.pilot.resize_terminal(80, 24)
        await chat.until(lambda: "STEP LATENCY" not in chat.text and "tok/s" in chat.text)


def test_the_bar_fills_its_width_and_shows_whatever_exists() -> None:
    for width in (5, 12, 31, 120):
        for kept, turn in ((0, 0), (0, 1), (1, 1), (2046, 1), (2047, 1), (2048, 0), (1900, 400)):
            capacity = Capacity(2048, kept, turn)
            cells = bar_cells(capacity, width)
            assert sum(cells) == width
            parts = (capacity.kept, capacity.turn, capacity.free)
            assert all(bool(cell) == bool(part) for cell, part in zip(cells, parts, strict=True))


def test_the_parts_of_the_bar_differ_in_shape() -> None:
    text = bar_content(Capacity(100, 50, 25), 20).plain
    assert text == USED * 10 + TURN * 5 + FREE * 5


def test_the_levels_differ_in_sign() -> None:
    def shown(used: int) -> str:
        return line(Reading(Capacity(100, used)), 60).plain

    assert " 50%" in shown(50)
    assert " ▲ 90%" in shown(90)
    assert " ■ 98%" in shown(98)
