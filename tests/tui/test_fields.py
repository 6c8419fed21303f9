"""Fields that are filled with a text: where the cursor stands and what typing does to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len
from typer.main import get_command

from q35chat.chat.values import ChatSettings
from q35chat.commands.ask import ask
from q35chat.tui.chat.completion import Choice
from q35chat.tui.fields import SAMPLING_FIELDS, Field
from q35chat.tui.widgets.composer import Suggestions
from q35chat.user_input import SAMPLING_RANGES
from tests.doubles.scripted_exporter import ScriptedExporter
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


async def test_the_line_that_is_written_stays_on_a_low_screen_with_suggestions() -> None:
    async with opened(size=(40, 12)) as chat:
        await chat.press(*"/e")
        await chat.see("/edit")
        editor = chat.screen.composer.editor
        assert chat.app.screen.region.contains_region(editor.region)
        assert editor.region.height
        shown = chat.screen.query_one(Suggestions)
        for _ in range(len(shown.choices) - 1):
            await chat.press("down")
        last = shown.choices[-1]
        assert shown.chosen == last
        await chat.see(f"› {last.label}")


async def test_the_first_field_of_the_setup_has_room_on_a_slim_screen() -> None:
    async with opened(size=(40, 12)) as chat:
        chat.app.exporter = ScriptedExporter()
        await chat.press("f9")
        await chat.see("Get a real model")
        await chat.until(lambda: box(chat).size.width >= 18)


@pytest.mark.parametrize("option", SAMPLING_RANGES)
def test_a_number_is_taken_or_refused_alike_in_the_form_and_on_the_command_line(
    option: str,
) -> None:
    low, high = SAMPLING_RANGES[option]
    field = next(field for field in SAMPLING_FIELDS if field.id == option)
    taken = next(
        it
        for it in get_command(typer_of(ask)).params
        if isinstance(it, typer.core.TyperOption) and it.name == option
    )
    for value in (low, high, low - 1, high + 1):
        text = str(value)
        assert _form_takes(field, text) == _line_takes(taken, text) == (low <= value <= high), text


def typer_of(command: Callable[..., int]) -> typer.Typer:
    app = typer.Typer()
    app.command()(command)
    return app


def _form_takes(field: Field, text: str) -> bool:
    try:
        field.apply(ChatSettings(), text)
    except ValueError:
        return False
    return True


def _line_takes(option: typer.core.TyperOption, text: str) -> bool:
    try:
        option.type.convert(text, option, None)
    except Exception:  # noqa: BLE001 - typer keeps its own copy of the error's class
        return False
    return True
