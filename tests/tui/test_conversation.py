from __future__ import annotations

from q35chat.tui.widgets.turns import AnswerView
from tests.doubles.scripted_backend import Gate, Reply
from tests.doubles.scripted_exporter import ScriptedExporter
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import NARROW, WIDE, Chat, opened


def last_answer(chat: Chat) -> AnswerView:
    view = chat.screen.transcript.views[-1]
    assert isinstance(view, AnswerView)
    return view


async def test_screen_text_is_the_model_text_to_the_last_token() -> None:
    text = "".join(f"Line {number} of the answer.\n\n" for number in range(60)) + "the very end"
    async with opened(ScriptedWorkspace([Reply(text)])) as chat:
        await chat.ask("go")
        assert last_answer(chat).answer.text == text
        assert "the very end" in chat.flat


async def test_a_stopped_answer_can_be_continued_in_place() -> None:
    gate = Gate()
    replies = [Reply("one two three", gate=gate), Reply(" and the rest")]
    async with opened(ScriptedWorkspace(replies)) as chat:
        await chat.send("count")
        gate.let(2)
        await chat.see("one two")
        await chat.press("escape")
        await chat.idle()
        assert chat.conversation.cancels == 1
        await chat.press("ctrl+g")
        await chat.see("one two and the rest")
        await chat.idle()
        assert len(chat.conversation.steps) == 2
        assert len(chat.screen.transcript.views) == 2
        assert "■ stopped" not in chat.flat


async def test_escape_leaves_an_edit_and_brings_the_draft_back(chat: Chat) -> None:
    await chat.ask("question one")
    await chat.write("half a thought")
    await chat.press("ctrl+e")
    assert chat.written == "question one"
    await chat.press("escape")
    assert chat.written == "half a thought"
    assert "editing" not in chat.flat


async def test_reasoning_grows_in_a_box_and_folds_when_the_answer_starts() -> None:
    gate = Gate()
    reply = Reply("the answer", reasoning="deep thoughts ", gate=gate)
    async with opened(ScriptedWorkspace([reply])) as chat:
        await chat.send("think")
        gate.let(3)
        await chat.see("deep thought")
        assert "thinking…" in chat.flat
        assert "Answer" not in chat.flat
        gate.open()
        await chat.idle()
        assert "deep thoughts" not in chat.flat
        assert "▸ thought" in chat.flat
        await chat.click(".reasoning-head")
        await chat.see("deep thoughts")


async def test_typing_goes_on_while_an_answer_is_written() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c d e f " * 20, gate=gate)])) as chat:
        await chat.send("go")
        for letter in "next":
            gate.let(3)
            await chat.press(letter)
        assert chat.written == "next"
        gate.open()
        await chat.idle()
        assert chat.written == "next"
        assert len(chat.conversation.steps) == 2


async def test_a_notice_of_the_engine_is_one_quiet_line() -> None:
    reply = Reply("a b c d e f", notice="thinking was cut after 512 tokens")
    async with opened(ScriptedWorkspace([reply])) as chat:
        await chat.ask("hello")
        assert "● thinking was cut after 512 tokens" in chat.flat


async def test_model_text_is_never_markup_or_an_escape() -> None:
    text = "[red]x[/red] [/nope] \x1b[31mred\x1b[0m <b>bold</b> \x9b2J [link](javascript:alert)"
    async with opened(ScriptedWorkspace([Reply(text, reasoning=text, token_size=1)])) as chat:
        await chat.ask(text)
        assert "[red]x[/red] [/nope] ␛[31mred␛[0m <b>bold</b> <9B>2J" in chat.flat
        assert "\x1b" not in chat.text


async def test_a_new_conversation_starts_empty_and_the_old_one_stays(chat: Chat) -> None:
    await chat.ask("hello")
    first = chat.conversation.id
    await chat.new()
    await chat.see("New chat")
    assert list(chat.screen.transcript.views) == []
    assert [summary.id for summary in chat.workspace.listed()] == [first]


async def test_commands_that_would_disturb_a_running_turn_wait_for_its_end() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c", gate=gate)])) as chat:
        await chat.send("go")
        await chat.until(lambda: chat.screen.session.running)
        chat.app.exporter = ScriptedExporter()
        for key in ("alt+r", "ctrl+e", "ctrl+n", "ctrl+l", "ctrl+g", "f9"):
            await chat.press(key)
        assert len(chat.app.screen_stack) == 2
        gate.open()
        await chat.idle()
        assert len(chat.conversation.steps) == 2


async def test_thinking_goes_off_on_budget_off(chat: Chat) -> None:
    seen = []
    for _ in range(3):
        await chat.press("ctrl+t")
        settings = chat.conversation.settings()
        seen.append((settings.thinking, settings.thinking_budget))
    assert seen == [(True, None), (True, 512), (False, None)]


async def test_how_the_prompt_was_read_stands_under_the_answer_and_in_the_meters() -> None:
    route = "17 tokens: prefill 32, then decode 2, loading prefill and decode, about 210 ms"
    async with opened(ScriptedWorkspace([Reply("ok", route=route)])) as chat:
        await chat.ask("hello")
        words = "read by prefill 32, then decode 2, loading prefill and decode"
        assert words in chat.flat
        await chat.until(lambda: "read by prefill 32, then decode" in chat.text.split("SPEED")[1])


async def test_numbers_under_an_answer_are_not_torn_apart_in_a_narrow_column() -> None:
    async with opened(size=(60, 20)) as chat:
        await chat.ask("hello")
        lines = [line.strip() for line in chat.text.split("\n")]
        assert "↑13 new  ↓4  18.5 tok/s  54 ms/step" in lines
        assert "first token 0.4 s" in lines


async def test_the_keys_to_stop_to_help_and_to_quit_are_always_visible() -> None:
    gate = Gate()
    async with opened(ScriptedWorkspace([Reply("a b c", gate=gate)])) as chat:
        await chat.send("go")
        await chat.until(lambda: "Esc stop" in chat.text)
        for size in ((60, 20), NARROW, WIDE):
            shown = await chat.resized(*size)
            assert "Esc stop" in shown
            assert "F1 help  Ctrl+Q quit" in shown
        gate.open()
        await chat.idle()
        assert "F1 help  Ctrl+Q quit" in chat.text
