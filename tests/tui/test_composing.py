from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from q35chat.commands.ask import AskOptions, ask_once
from q35chat.errors import PictureError
from q35chat.tui.widgets.chips import Chip
from tests.cli.scripted import recorded
from tests.tui.support import Chat, opened, picture_file


async def paste(chat: Chat, text: str) -> None:
    chat.screen.composer.editor.post_message(events.Paste(text))
    await chat.pilot.pause()


async def attached(chat: Chat, number: int) -> None:
    await chat.until(lambda: len(chat.screen.composer.chips.attachments) == number)
    await chat.pilot.pause()


async def test_enter_sends_and_control_j_makes_a_line(chat: Chat) -> None:
    await chat.press("a", "ctrl+j", "b", "shift+enter", "c")
    assert chat.written == "a\nb\nc"
    await chat.press("enter")
    await chat.sent("a\nb\nc")


async def test_an_empty_message_is_not_sent(chat: Chat) -> None:
    await chat.press("space", "enter")
    assert not chat.screen.session.running
    assert not chat.conversation.steps


async def test_the_composer_grows_with_its_text_and_no_further_than_a_third(chat: Chat) -> None:
    before = chat.screen.composer.editor.size.height
    await chat.write("line\n" * 4)
    assert chat.screen.composer.editor.size.height == before + 4
    await chat.write("line\n" * 40)
    assert chat.screen.composer.editor.size.height <= 12


async def test_a_paste_is_never_sent_and_keeps_its_lines(chat: Chat) -> None:
    await paste(chat, "first line\r\nsecond line\r\n")
    assert chat.written == "first line\nsecond line\n"
    assert not chat.conversation.steps


async def test_pasted_text_that_looks_like_a_command_is_text(chat: Chat) -> None:
    await paste(chat, "/new")
    await chat.press("enter")
    await chat.sent("/new")


async def test_a_typed_path_that_starts_with_a_slash_is_not_a_command(
    chat: Chat, tmp_path: Path
) -> None:
    await chat.send(f"{tmp_path} what is in this folder?")
    await chat.until(lambda: len(chat.conversation.steps) == 2)


async def test_an_unknown_command_is_explained_and_not_sent(chat: Chat) -> None:
    await chat.send("/frobnicate now")
    await chat.see("/frobnicate is no command")
    assert "/frobnicate is no command" in await chat.settled()
    assert chat.written == "/frobnicate now"
    assert not chat.conversation.steps


async def test_a_large_paste_folds_and_is_sent_in_full() -> None:
    pasted = "\n".join(f"row {number}" for number in range(400))
    async with opened() as chat:
        await chat.write("Summarise: ")
        await paste(chat, pasted)
        assert chat.written == "Summarise: [paste #1 · 400 lines]"
        await chat.press("enter")
        await chat.sent(f"Summarise: {pasted}")


async def test_a_folded_paste_is_deleted_as_one(chat: Chat) -> None:
    await chat.write("x ")
    await paste(chat, "y" * 5_000)
    await chat.press("backspace")
    assert chat.written == "x "


async def test_a_pasted_picture_path_becomes_a_chip(tmp_path: Path) -> None:
    path = picture_file(tmp_path, "my house.png")
    async with opened() as chat:
        await paste(chat, f"'{path}'")
        await attached(chat, 1)
        assert chat.written == ""
        assert "my house.png 64×32 4 slots ×" in chat.flat
        await chat.see("(4 picture)")


async def test_a_picture_is_attached_whatever_its_name_says(tmp_path: Path) -> None:
    path = picture_file(tmp_path).rename(tmp_path / "IMG_0001.HEIC")
    async with opened() as chat:
        await paste(chat, str(path))
        await attached(chat, 1)


async def test_a_picture_that_cannot_be_read_is_named_in_the_line_of_ask(tmp_path: Path) -> None:
    path = tmp_path / "IMG_0001.avif"
    path.write_bytes(b"\x00\x00\x00\x18ftypavif0000")
    seen = recorded()
    with pytest.raises(PictureError) as caught:
        ask_once(AskOptions("What is it?", images=[path]), seen.console)
    async with opened() as chat:
        await paste(chat, str(path))
        await chat.hear(str(caught.value))
        assert not chat.screen.composer.chips.chips


async def test_a_typed_path_attaches_and_can_be_taken_away_again(tmp_path: Path) -> None:
    path = picture_file(tmp_path)
    async with opened() as chat:
        await chat.write(str(path))
        await chat.press("space", *"hi")
        await attached(chat, 1)
        assert chat.written == "hi"
        await chat.click(Chip)
        await chat.until(lambda: not chat.screen.composer.chips.chips)
        await chat.press("enter")
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        turn = chat.conversation.steps[0].turn
        assert (turn.text, turn.attachments) == ("hi", ())


async def test_a_path_typed_at_the_end_attaches_before_the_message_is_sent(tmp_path: Path) -> None:
    path = picture_file(tmp_path)
    async with opened() as chat:
        await chat.write(f"What is this? {path}")
        await chat.press("enter")
        await attached(chat, 1)
        assert chat.written == "What is this?"
        assert not chat.conversation.steps
        await chat.see("Enter sends")
        await chat.press("enter")
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        assert [it.name for it in chat.conversation.steps[0].turn.attachments] == [path.name]


async def test_a_path_within_pasted_text_or_a_command_stays_where_it_is(tmp_path: Path) -> None:
    path = picture_file(tmp_path)
    async with opened() as chat:
        await paste(chat, f"see {path} there")
        await chat.press("enter")
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        assert chat.conversation.steps[0].turn.text == f"see {path} there"
        await chat.write(f"/image {path}")
        await chat.press("space")
        assert not chat.screen.composer.chips.chips
        assert chat.written == f"/image {path} "


@pytest.mark.parametrize("key", ["up", "ctrl+e"])
async def test_a_path_in_a_question_asked_before_stays_where_it_is(
    key: str, tmp_path: Path
) -> None:
    path = picture_file(tmp_path)
    async with opened() as chat:
        await paste(chat, f"see {path}")
        await chat.press("enter")
        await chat.until(lambda: len(chat.conversation.steps) == 2)
        await chat.press(key, "enter")
        await chat.until(lambda: chat.screen.composer.empty)
        assert chat.conversation.steps[-2].turn.text == f"see {path}"
        assert not chat.conversation.steps[-2].turn.attachments


async def test_an_address_of_the_web_is_refused_with_the_address_whole(chat: Chat) -> None:
    await chat.write("/image https://example.org/a//b.png?x=1")
    await chat.press("enter")
    await chat.see("https://example.org/a//b.png?x=1 is not fetched")
    assert not chat.screen.composer.chips.chips


async def test_pictures_can_be_taken_away_by_backspace_and_by_click(
    chat: Chat, tmp_path: Path
) -> None:
    await paste(chat, str(picture_file(tmp_path, "one.png")))
    await attached(chat, 1)
    await paste(chat, str(picture_file(tmp_path, "two.png")))
    await attached(chat, 2)
    await chat.press("backspace")
    await attached(chat, 1)
    assert "one.png" in chat.flat
    await chat.click(".chip")
    await attached(chat, 0)
    assert "one.png" not in chat.flat


async def test_a_broken_picture_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = picture_file(tmp_path, "broken.png")
    path.write_bytes(path.read_bytes()[:30])
    async with opened() as chat:
        await paste(chat, str(path))
        await chat.hear("broken.png is a damaged or incomplete PNG file (30 bytes)")
        await chat.until(lambda: not chat.screen.composer.chips.chips)


async def test_an_edit_keeps_the_pictures_of_the_question(chat: Chat, tmp_path: Path) -> None:
    await paste(chat, str(picture_file(tmp_path)))
    await attached(chat, 1)
    await chat.ask("what is it?")
    await chat.press("ctrl+e")
    await attached(chat, 1)
    await chat.send(" really?")
    await chat.idle()
    question = chat.conversation.steps[0].turn
    assert question.text == "what is it? really?"
    assert [picture.name for picture in question.attachments] == ["house.png"]


async def test_slash_completes_commands_and_enter_runs_the_chosen_one(chat: Chat) -> None:
    await chat.press(*"/hel")
    await chat.see("› /help")
    await chat.press("enter")
    await chat.see("Keys and commands")
    await chat.press("escape")
    assert chat.written == ""


async def test_up_on_an_empty_line_walks_through_earlier_questions(chat: Chat) -> None:
    await chat.ask("first")
    await chat.ask("second")
    editor = chat.screen.composer.editor
    texts = []
    for key in ("up", "up", "up", "down", "down"):
        await chat.press(key)
        texts.append(editor.text)
    assert texts == ["second", "first", "first", "second", ""]


async def test_up_in_a_draft_moves_the_cursor_and_keeps_the_draft(chat: Chat) -> None:
    await chat.ask("first")
    await chat.write("my draft")
    await chat.press("up")
    assert chat.written == "my draft"


async def test_control_c_never_clears_and_never_quits(chat: Chat) -> None:
    await chat.write("precious words")
    await chat.press("ctrl+c", "ctrl+c")
    assert chat.written == "precious words"
    assert chat.app.is_running


async def test_in_an_empty_message_control_c_twice_and_control_d_leave() -> None:
    async with opened() as chat:
        await chat.press("ctrl+c")
        await chat.hear("Ctrl+C again or Ctrl+Q leaves")
        assert chat.app.is_running
        await chat.press("ctrl+c")
        await chat.until(lambda: not chat.app.is_running)
    async with opened() as chat:
        await chat.press("x", "left", "ctrl+d")
        assert chat.written == ""
        assert chat.app.is_running
        await chat.press("ctrl+d")
        await chat.until(lambda: not chat.app.is_running)


async def test_the_real_cursor_stands_where_the_text_ends(chat: Chat) -> None:
    await chat.write("中文")
    editor = chat.screen.composer.editor
    assert chat.app.cursor_position == editor.cursor_screen_offset
    assert chat.app.cursor_position.x == editor.region.x + 4
