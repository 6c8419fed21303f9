"""What of a chat is shown, by keys alone: the reasoning of its answers, and the meters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from q35chat.chat.values import Turn
from q35chat.settings import Settings, load_settings
from q35chat.tui.chat.meter import Capacity, Reading
from q35chat.tui.screens.chat import Opening
from q35chat.tui.widgets.meters import MeterLine, Meters, line
from q35chat.tui.widgets.reasoning import Reasoning
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_workspace import ScriptedWorkspace, dialogue
from tests.tui.support import NARROW, WIDE, Chat, opened

THOUGHT = "\n".join(f"thought number {number}" for number in range(1, 41))


def thoughtful(answer: str = "Done.") -> ScriptedWorkspace:
    return ScriptedWorkspace([Reply(answer, reasoning=THOUGHT)])


def boxes(chat: Chat) -> list[Reasoning]:
    return [box for box in chat.screen.query(Reasoning) if box.text]


async def press_slash(chat: Chat, name: str) -> None:
    await chat.press(*f"/{name}", "enter")


# -- reasoning


@pytest.mark.parametrize("way", ["key", "slash", "palette"])
async def test_folded_reasoning_is_opened_and_folded_without_a_mouse(way: str) -> None:
    async def act() -> None:
        if way == "key":
            await chat.press("f12")
        elif way == "slash":
            await press_slash(chat, "reasoning")
        else:
            await chat.press("ctrl+p", *"hide the reasoning")
            await chat.see("or fold it")
            await chat.press("enter", "enter")
        await chat.settled()

    async with opened(thoughtful()) as chat:
        await chat.ask("think")
        await chat.see("▸ thought")
        await act()
        assert "▾ thought" in chat.flat
        assert "thought number 1 " in chat.flat
        await act()
        assert "▸ thought" in chat.flat
        assert "thought number" not in chat.flat
        assert chat.screen.transcript.following


async def test_opened_reasoning_is_whole_and_read_with_the_page_keys() -> None:
    async with opened(thoughtful()) as chat:
        await chat.ask("think")
        await chat.press("f12")
        await chat.settled()
        assert "thought number 1 " in chat.flat
        seen = chat.flat
        for _ in range(3):
            await chat.press("pagedown")
            await chat.settled()
            seen += chat.flat
        assert all(f"thought number {number} " in seen for number in range(1, 41))


async def test_reasoning_opened_by_key_stays_open_when_the_answer_starts() -> None:
    gate = Gate()
    reply = Reply("the answer", reasoning="deep thoughts ", gate=gate)
    async with opened(ScriptedWorkspace([reply])) as chat:
        await chat.send("think")
        gate.let(3)
        await chat.made(3)
        await chat.press("f12", "f12")
        gate.open()
        await chat.idle()
        assert not boxes(chat)[0].folded
        assert "deep thoughts" in chat.flat


async def test_only_the_answers_on_screen_open_and_they_open_together() -> None:
    workspace = ScriptedWorkspace()
    turns = [*dialogue(1), Turn("user", "q"), Turn("assistant", "first", (), "hm one"),
             Turn("user", "q"), Turn("assistant", "second", (), "hm two"), *dialogue(10),
             Turn("user", "q"), Turn("assistant", "last", (), "hm three")]  # fmt: skip
    stored = workspace.add("Long", turns)
    async with opened(workspace, opening=Opening(stored.id)) as chat:
        while chat.screen.transcript.hidden_before:
            await chat.screen.transcript.earlier()
        await chat.press("ctrl+end")
        await chat.settled()
        await chat.press("f12")
        await chat.see("hm three")
        chat.screen.transcript.scroll_home(animate=False)
        await chat.settled()
        assert boxes(chat)[0].folded
        await chat.press("f12")
        await chat.settled()
        assert [box.folded for box in boxes(chat)][:2] == [False, False]


async def test_the_box_names_the_users_own_key_which_opens_it() -> None:
    async with opened(thoughtful(), settings=Settings(shortcuts={"reasoning": "f10"})) as chat:
        await chat.ask("think")
        await chat.see("· F10")
        await chat.press("f10")
        await chat.see("▾ thought")


# -- meters


@pytest.mark.parametrize("size", [NARROW, (60, 20)])
async def test_a_narrow_screen_shows_all_meters_when_asked(size: tuple[int, int]) -> None:
    workspace = ScriptedWorkspace([Reply("a b c d e f", route="the chunk graph")])
    async with opened(workspace, size=size) as chat:
        await chat.ask("hello")
        assert "STEP LATENCY" not in chat.flat
        await chat.press("ctrl+s")
        await chat.settled()
        for words in ("p50 54 ms", "0.4 s to the first token", "cpu · int4 · AMD EPYC, 2 threads"):
            assert words in chat.flat
        assert not chat.screen.query_one(MeterLine).display
        await chat.write("and now")
        assert "and now" in chat.flat
        await press_slash_behind(chat)
        assert "STEP LATENCY" not in chat.flat
        assert chat.screen.query_one(MeterLine).display


async def press_slash_behind(chat: Chat) -> None:
    chat.screen.composer.put("")
    await press_slash(chat, "meters")
    await chat.settled()


async def test_a_wide_screen_gives_the_room_of_the_meters_to_the_chat_when_asked(
    chat: Chat,
) -> None:
    await chat.ask("hello")
    await chat.press("ctrl+s")
    await chat.settled()
    assert "STEP LATENCY" not in chat.text
    assert "18.5 tok/s" in chat.text.split("\n")[-6]
    await chat.press("ctrl+s")
    await chat.settled()
    assert "STEP LATENCY" in chat.text


async def test_each_width_keeps_its_way_to_show_the_meters() -> None:
    async with opened(size=NARROW) as chat:
        await chat.press("ctrl+s")
        await chat.pilot.resize_terminal(*WIDE)
        await chat.settled()
        assert chat.screen.query_one(Meters).display
        await chat.press("ctrl+s")
        await chat.settled()
        assert not chat.screen.query_one(Meters).display
        await chat.pilot.resize_terminal(*NARROW)
        await chat.settled()
        assert chat.screen.query_one(Meters).display


async def test_the_meters_have_the_reading_at_once_in_whichever_form_is_on_screen() -> None:
    async with opened(size=WIDE) as chat:
        await chat.ask("how far?")
        await chat.settled()
        chat.screen.session.meter.idle(chat.conversation)
        free = f"{chat.screen.session.meter.capacity.free:,} free"
        for size in (NARROW, WIDE, NARROW, WIDE):
            await chat.pilot.resize_terminal(*size)
            assert free in chat.text
            assert "no model yet" not in chat.text


def running(used: int) -> Reading:
    steps = (54.0,) * 60
    return Reading(Capacity(2_048, used), None, steps, 0, 54.0, 90.0, 49.7, 54.0, 18.5, made=60)


@pytest.mark.parametrize("used", [12, 459, 1_300, 1_950])
@pytest.mark.parametrize("width", [76, 84, 95])
def test_the_line_of_meters_has_the_percentiles_and_the_graph_what_is_left(
    used: int, width: int
) -> None:
    shown = line(running(used), width)
    assert shown.cell_length <= width
    assert "18.5 tok/s" in shown.plain
    assert "p50 54 p95 90 ms" in shown.plain
    assert "▃▃▃" in shown.plain


def test_in_detail_the_line_tells_the_share_of_the_runtime_where_there_is_room() -> None:
    assert line(running(12), 116).plain.endswith("p50 54 p95 90 ms")
    detailed = replace(running(12), details=True)
    assert line(detailed, 116).plain.endswith("p50 54 p95 90 ms   92% runtime")


async def test_what_a_step_is_made_of_opens_with_a_key_and_stays_as_it_was_left() -> None:
    workspace = ScriptedWorkspace([Reply("a b c d e f")])
    async with opened(workspace) as chat:
        await chat.ask("hello")
        assert "predict" not in chat.text
        assert chat.text.count("Qwen3.5-0.8B") == 2  # the title, and who answered
        await chat.press("alt+s")
        await chat.until(lambda: "predict 50 ms    wall 54 ms" in chat.text)
        assert "92% runtime + 4.3 ms host" in chat.text
    assert load_settings().details
    async with opened(workspace, settings=load_settings()) as chat:
        await chat.ask("hello")
        await chat.until(lambda: "predict 50 ms" in chat.text)
        await chat.press("alt+s")
        await chat.until(lambda: "predict" not in chat.text)
    assert not load_settings().details


# -- the palette


async def test_the_palette_finds_a_setting_and_goes_to_its_field(chat: Chat) -> None:
    await chat.press("ctrl+p", *"repetition")
    await chat.see("A setting of this chat: against repeating; 1 is off")
    await chat.press("enter", "enter")
    await chat.see("Keep for all new chats")
    await chat.until(lambda: getattr(chat.app.focused, "id", "") == "repetition_penalty")


async def test_the_palette_finds_a_theme_and_wears_it_from_then_on(chat: Chat) -> None:
    await chat.press("ctrl+p", *"theme q35-light")
    await chat.see("Light colours, from now on in all chats")
    await chat.press("enter", "enter")
    await chat.until(lambda: chat.app.theme == "q35-light")
    assert load_settings().theme == "q35-light"
