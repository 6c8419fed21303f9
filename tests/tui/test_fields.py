"""Fields that are filled with a text: where the cursor stands and what typing does to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from q35chat.tui.chat.completion import Choice
from q35chat.tui.widgets.composer import Suggestions
from tests.tui.support import Chat, box, list_of_chats, opened, picture_file


@pytest.mark.parametrize("searched", ["", "coo"])
async def test_a_title_to_be_changed_is_selected_with_the_cursor_at_its_end(
    chat: Chat, searched: str
) -> None:
    await list_of_chats(chat)
    await chat.press(*searched)
    for keys, title in (
        ([*"Baking"], "Baking"),
        (["end", *" well"], "Cooking well"),
        (["right", "s"], "Cookings"),
        (["home", "x"], "xCooking"),
        (["backspace", "a"], "a"),
    ):
        await chat.press("f2")
        await chat.until(lambda: box(chat).value == "Cooking")
        await chat.press(*keys)
        assert box(chat).value == title
        await chat.press("escape")


async def test_the_search_goes_on_where_it_was_before_a_chat_was_renamed(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press(*"coo", "f2", "escape", "k")
    assert box(chat).value == "cook"


@pytest.mark.parametrize("width", [120, 80, 60])
async def test_what_is_suggested_stands_in_two_columns_whatever_the_names_are(
    width: int, tmp_path: Path
) -> None:
    for name in ("a.png", f"{'long-name-' * 4}b.png", f"{'中文' * 40}.png"):
        picture_file(tmp_path, name)
    (tmp_path / "folder").mkdir()
    async with opened(size=(width, 24)) as chat:
        await chat.press("@")
        await chat.see("› folder/")
        shown = chat.screen.query_one(Suggestions)
        lines = [line.plain for line in shown.render().split("\n")]
        kinds = [line.rpartition("  ")[2] for line in lines]
        assert kinds == ["folder", "picture", "picture", "picture"]
        starts = {cell_len(line[: -len(kind)]) for line, kind in zip(lines, kinds, strict=True)}
        assert len(starts) == 1
        assert all(cell_len(line) <= shown.content_size.width for line in lines)


async def test_suggestions_without_room_are_shown_all_the_same() -> None:
    async with opened(size=(10, 24)) as chat:
        suggestions = chat.screen.query_one(Suggestions)
        suggestions.offer((Choice("a" * 50, "", "picture"), Choice("b", "", "folder")))
        await chat.pilot.pause()
        assert len(suggestions.render().plain.splitlines()) == 2
