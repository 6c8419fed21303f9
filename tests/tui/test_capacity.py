from __future__ import annotations

import re
from dataclasses import replace

from q35chat.chat.events import PromptPlan
from q35chat.chat.service import Forecast
from q35chat.errors import CapacityError
from q35chat.tui.chat.meter import Capacity, Meter, Reading
from q35chat.tui.chat.running_turn import Batch
from q35chat.tui.widgets.meters import FREE, TURN, USED, bar_cells, bar_content, line
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace, dialogue
from tests.tui.on_the_way import open_long, resting, ways
from tests.tui.support import NARROW, Chat, opened


async def test_at_capacity_the_answer_stays_and_the_ways_on_have_keys() -> None:
    replies = [Reply("so far so good", finish="capacity"), Reply(" and on")]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await open_long(chat, 1_900)
        await chat.ask("tell me more")
        await chat.see("Capacity reached")
        await chat.see("so far so good")
        await chat.see("▲ capacity reached")
        await chat.see("F6 Leave out “Question number 1?” and go on (frees")
        await chat.press("f6")
        await chat.hear("Left out “Question number 1?”")
        assert [step.left_out for step in chat.conversation.steps[:4]] == [True, True, False, False]
        await chat.see("so far so good and on")


async def test_typing_never_chooses_a_way_on() -> None:
    async with opened(ScriptedWorkspace([Reply("x", finish="capacity")])) as chat:
        await chat.ask("hello")
        await chat.see("Capacity reached")
        await chat.press(*"new drop export")
        assert chat.screen.panel.display
        assert chat.written == "new drop export"


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


async def test_used_this_turn_and_free_add_up_to_the_capacity_at_every_moment() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c d " * 9, gate=gate)])) as chat:
        await open_long(chat, 1_000)

        def numbers() -> list[int]:
            text = " ".join(chat.text.split())
            found = re.search(
                r"([\d,]+) used .*?([\d,]+) this turn .*?([\d,]+) free of 2,048", text
            )
            assert found is not None
            return [int(number.replace(",", "")) for number in found.groups()]

        assert numbers() == [1_000, 0, 1_048]
        await chat.write("hello there")
        await chat.see("this turn needs 14 slots")
        assert numbers() == [1_000, 14, 1_034]
        await chat.press("enter")
        gate.let(5)
        await chat.made(5)
        await chat.until(lambda: numbers() == [1_000, 19, 1_029])
        gate.open()
        await chat.idle()
        assert numbers() == [1_032, 0, 1_016]


async def test_a_prompt_that_is_read_again_is_still_used_and_not_this_turn() -> None:
    meter = Meter()
    meter.idle(resting(1_000))
    meter.expect(Forecast(14, 0, 1_000, 1_034, True))
    meter.begin()
    meter.take(Batch(plan=PromptPlan(1_014, 0, 0, 2_048)))
    assert (meter.capacity.kept, meter.capacity.turn, meter.capacity.free) == (1_000, 14, 1_034)


async def test_a_draft_over_the_capacity_says_by_how_much(chat: Chat) -> None:
    await open_long(chat, 2_000)
    await chat.write("word " * 60)
    await chat.until(lambda: "38 over 2,048" in " ".join(chat.text.split()))
    await chat.pilot.resize_terminal(*NARROW)
    await chat.see("2,000 used · 86 this turn · 38 over 2,048")


async def test_narrow_screens_count_a_draft_in_words() -> None:
    async with opened(size=NARROW) as chat:
        await open_long(chat, 1_000)
        await chat.see("1,000 used · 1,048 free of 2,048")
        await chat.write("hello there")
        await chat.see("1,000 used · 14 this turn · 1,034 free of 2,048")


async def test_leaving_turns_out_shows_its_cost_and_sends_what_did_not_fit() -> None:
    async with opened(ScriptedWorkspace([Reply("now it fits")])) as chat:
        await open_long(chat, 2_000)
        await chat.write("word " * 60)
        await chat.see("✗ this turn needs 86 slots and one for the answer, 48 are free")
        await chat.press("enter")
        await chat.see("F6 Leave out “Question number 1?” and send (frees 1,960 slots")
        await chat.press("f6")
        await chat.see("now it fits")
        await chat.see("left out: the model no longer reads this turn")
        assert [step.left_out for step in chat.conversation.steps[:3]] == [True, True, False]


async def test_as_many_turns_as_needed_are_offered_to_be_left_out(chat: Chat) -> None:
    await open_long(chat, 2_000)
    for answer, slots in enumerate((100, 140, 2_000)):  # the first two questions take 60 each
        chat.conversation.fill(slots, answer)
    await chat.write("word " * 80)
    await chat.see("✗ this turn needs")
    await chat.press("enter")
    await chat.see("F6 Leave out the oldest 2 questions and send (frees 120 slots")


async def test_a_message_that_does_not_fit_can_go_into_a_new_conversation(chat: Chat) -> None:
    await open_long(chat, 2_000)
    old = chat.conversation.id
    await chat.write("word " * 60)
    await chat.see("✗ this turn needs")
    await chat.press("enter")
    await chat.see("F5 New chat with this message")
    await chat.press("f5")
    await chat.until(lambda: chat.conversation.id != old)
    await chat.until(lambda: chat.written == "word " * 60)
    chat.screen.loader.open(old)
    await chat.until(lambda: chat.conversation.id == old)
    await chat.until(lambda: chat.written == "")


async def test_an_edited_question_is_forecast_in_its_place() -> None:
    async with opened(ScriptedWorkspace([Reply("edited")])) as chat:
        await open_long(chat, 2_040)
        await chat.press("ctrl+e")
        await chat.see("this turn needs 16 slots · 12 left for the answer")
        await chat.write(" really?")
        await chat.see("this turn needs 18 slots")
        await chat.press("enter")
        await chat.see("edited")


async def test_a_drop_of_so_many_turns_is_checked(chat: Chat) -> None:
    await open_long(chat, 1_000)
    await chat.press(*"/drop 3", "enter")
    await chat.hear("“3” is not a number from 1 to 2")
    await chat.press(*"/drop 2", "enter")
    await chat.hear("Left out the oldest 2 questions; 980 slots are free again")
    assert [step.left_out for step in chat.conversation.steps] == [True] * 4 + [False] * 2


async def test_a_summary_without_room_is_not_offered_again() -> None:
    error = CapacityError("Question 1 leaves no room for a summary; leave it out first")
    async with opened(ScriptedWorkspace([Reply(error=error)])) as chat:
        await open_long(chat, 1_000)
        await chat.press(*"/summarise", "enter")
        await chat.see("There is no room for a summary")
        assert "from a summary" not in chat.flat
        assert "Leave out “Question number 1?” (frees" in chat.flat


async def test_a_panel_shows_its_keys_below_and_an_edit_takes_it_away() -> None:
    async with opened(ScriptedWorkspace([Reply("x", finish="capacity")]), size=NARROW) as chat:
        await open_long(chat, 1_900)
        await chat.ask("tell me more")
        await chat.see("F5–F8 choose Esc close")
        await chat.press("ctrl+e")
        await chat.see("editing question 4 of 4")
        assert not chat.screen.panel.display
        assert "F5–F8" not in chat.flat


async def test_what_a_conversation_goes_on_from_stands_above_it() -> None:
    replies = [Reply("so far", finish="capacity"), Reply("in short: hello"), Reply("of course")]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await chat.ask("hello")
        first = chat.conversation.id
        await chat.see("F6 New chat from a summary")
        await chat.press("f6")
        await chat.see("This chat starts from the summary")
        await chat.see("What was said before, in short ▌ in short: hello")
        assert chat.conversation.id != first
        assert len(chat.workspace.conversations[first].steps) == 2
        await chat.ask("do you remember?")
        assert "What was said before, in short ▌ in short: hello" in chat.flat
        await chat.press("ctrl+n")
        await chat.until(lambda: "What was said before" not in chat.flat)


async def test_one_turn_that_fills_the_capacity_is_offered_no_summary_that_cannot_be_written() -> (
    None
):
    async with opened(ScriptedWorkspace([Reply("x " * 40, finish="capacity")])) as chat:
        conversation = chat.workspace.add("Full", dialogue(1))
        conversation.fill(2_040)
        await chat.open(conversation)
        await chat.press("alt+r")
        await chat.see("Capacity reached")
        assert "New chat" in ways(chat)
        assert [label for label in ways(chat) if "summary" in label] == [
            "New chat from a summary that the model writes first"
        ]
        conversation.fill(2_040)
        await chat.write("word " * 30)
        await chat.see("✗")
        await chat.press("enter")
        await chat.see("This turn does not fit")
        assert not [label for label in ways(chat) if "summary" in label]


async def test_a_chat_of_a_larger_model_says_by_how_much_it_is_over() -> None:
    async with opened(ScriptedWorkspace(info=replace(MODEL, capacity=512))) as chat:
        await open_long(chat, 1_700)
        await chat.until(lambda: "1,188 over 512" in chat.text)
        await chat.see("This chat holds 1,188 slots more than the 512 of this model")
        await chat.write("and then?")
        await chat.until(lambda: chat.screen.draft.forecast is not None)
        assert chat.screen.draft.forecast is not None
        said = "what was said before is 1,188 over the 512 of this model"
        assert said in chat.screen.draft.forecast.reason


async def test_the_beginning_of_a_command_is_no_turn(chat: Chat) -> None:
    for text in ("/", "/t", "/thi"):
        await chat.press(text[-1])
        await chat.settled()
        assert chat.screen.draft.forecast is None
        assert "this turn needs" not in chat.flat
