"""Keys that come before the list they are for: they mean the list of the text as it is now."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from textual import events

from q35chat.tui.chat.completion import Choice, listing
from q35chat.tui.chat.file_search import FileSearch
from q35chat.tui.screens import picker
from q35chat.tui.widgets import composer
from q35chat.tui.widgets.key_order import LatestQuery
from tests.doubles.scripted_backend import PATIENCE_S
from tests.doubles.scripted_exporter import GIB, MIB, ScriptedExporter
from tests.tui.setting_up import looked_up, put, setting_up, setup_of
from tests.tui.support import Chat, box, list_of_chats, opened, picture_file


def hold(monkeypatch: pytest.MonkeyPatch, module: ModuleType, gate: threading.Event) -> None:
    """Lists for any text wait for the gate; the one for no text does not."""

    def held(word: str, start: Path, most: int = 8) -> tuple[Choice, ...]:
        assert not word or gate.wait(PATIENCE_S), "nobody opened the gate"
        return listing(word, start, most)

    monkeypatch.setattr(module, "listing", held)


def pictures(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        picture_file(folder, name)


async def attached(chat: Chat, name: str) -> None:
    await chat.until(lambda: bool(chat.screen.composer.chips.attachments))
    assert [picture.name for picture in chat.screen.composer.chips.attachments] == [name]


# -- the picker


async def test_enter_takes_the_picture_whose_path_was_just_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    pictures(tmp_path, "alpha.png")
    pictures(tmp_path / "other", "deep.png", "deeper.png")
    hold(monkeypatch, picker, gate)
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.see("alpha.png")
        await chat.at_once(events.Paste(str(tmp_path / "other" / "deep.png")), "enter")
        assert len(chat.app.screen_stack) == 3
        gate.set()
        await attached(chat, "deep.png")


async def test_arrows_and_tab_in_the_picker_mean_the_list_that_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    pictures(tmp_path, "alpha.png", "beta.png")
    pictures(tmp_path / "other", "one.png", "two.png")
    hold(monkeypatch, picker, gate)
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.see("beta.png")
        await chat.at_once(*"other/", "down", "tab")
        gate.set()
        await chat.until(lambda: box(chat).value == "other/two.png")
        await chat.press("enter")
        await attached(chat, "two.png")


async def test_enter_waits_no_more_once_the_path_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    pictures(tmp_path, "alpha.png", "beta.png")
    hold(monkeypatch, picker, gate)
    async with opened() as chat:
        await chat.press("ctrl+o")
        await chat.see("beta.png")
        await chat.press("b", "enter", "e")
        gate.set()
        await chat.until(lambda: "alpha.png" not in chat.flat)
        await chat.settled()
        assert box(chat).value == "be"


async def test_a_whole_name_is_listed_first_and_in_a_folder_of_any_size(tmp_path: Path) -> None:
    names = [f"{number:04}.png" for number in range(2_400)]
    for name in (*names, "house.png", "House.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    for name in (names[0], names[-1], "house.png", "House.png"):
        found = listing(f"{tmp_path}/{name}", Path())
        assert found[0].file == tmp_path / name


@pytest.mark.parametrize("key", ["@", "ctrl+o"])
async def test_the_home_of_a_user_who_does_not_exist_has_nothing_in_it(
    chat: Chat, key: str
) -> None:
    await chat.press(key, *"~nobody-of-that-name/")
    await chat.settled()
    assert chat.app.is_running
    assert not listing("~nobody-of-that-name/", Path())


# -- the list of chats


async def test_enter_opens_the_chat_that_the_search_finds(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    await list_of_chats(chat)
    find = chat.workspace.listed

    def held(query: str = "") -> object:
        assert gate.wait(PATIENCE_S), "nobody opened the gate"
        return find(query)

    monkeypatch.setattr(chat.workspace, "listed", held)
    await chat.at_once(*"nor", "enter")
    assert len(chat.app.screen_stack) == 3
    gate.set()
    await chat.until(lambda: chat.conversation.title == "Norway")


async def test_what_is_deleted_or_renamed_is_what_the_search_finds(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.at_once(*"nor", "delete")
    await chat.see("Deleted “Norway”")
    await chat.press("ctrl+z", "backspace", "backspace", "backspace")
    await chat.see("Cooking")
    await chat.at_once(*"bin", "f2")
    await chat.until(lambda: box(chat).value == "Binary search")


async def test_enter_right_after_deleting_opens_what_is_left(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.at_once("delete", "enter")
    await chat.until(lambda: chat.conversation.title == "Binary search")


async def test_delete_in_a_title_deletes_a_letter(chat: Chat) -> None:
    await list_of_chats(chat)
    await chat.press("f2")
    await chat.see("New title")
    await chat.press("home", "delete")
    assert box(chat).value == "ooking"


# -- the composer


async def test_enter_right_after_a_path_attaches_and_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    pictures(tmp_path, "alpha.png", "beta.png")
    hold(monkeypatch, composer, gate)
    async with opened() as chat:
        await chat.at_once(*f"see @{tmp_path}/be", "enter")
        gate.set()
        await attached(chat, "beta.png")
        assert chat.written == "see "
        assert not chat.conversation.steps


async def test_a_key_means_the_completions_of_what_was_typed_last(tmp_path: Path) -> None:
    pictures(tmp_path, "alpha.png")
    pictures(tmp_path / "beach", "sand.png")
    async with opened() as chat:
        await chat.press("@")
        await chat.see("› beach/")
        await chat.at_once("a", "tab")
        await attached(chat, "alpha.png")
        await chat.press("backspace", "@")
        await chat.see("› beach/")
        await chat.at_once(*"beach/sa", "enter")
        await attached(chat, "sand.png")


async def test_enter_sends_where_the_path_names_nothing(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    hold(monkeypatch, composer, gate)
    async with opened() as chat:
        await chat.at_once(*"hi @bob", "enter")
        gate.set()
        await chat.sent("hi @bob")


async def test_escape_closes_the_completions_and_enter_sends(tmp_path: Path) -> None:
    pictures(tmp_path, "alpha.png")
    async with opened() as chat:
        await chat.press(*"see @a")
        await chat.see("› alpha.png")
        await chat.press("escape", "enter")
        await chat.sent("see @a")


async def test_enter_right_after_the_last_letter_of_an_argument_runs_the_command(
    chat: Chat,
) -> None:
    await chat.press(*"/thin")
    await chat.see("› /think")
    await chat.at_once(*"k 64", "enter")
    await chat.until(lambda: chat.conversation.settings().thinking_budget == 64)


async def test_the_highlighted_choice_stays_so_when_more_files_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    pictures(tmp_path, "bela.png", "beta.png")
    pictures(tmp_path / "deep", "my_beta.png")
    walk = FileSearch.walk

    def held(search: FileSearch) -> None:
        assert gate.wait(PATIENCE_S), "nobody opened the gate"
        walk(search)

    monkeypatch.setattr(FileSearch, "walk", held)
    async with opened() as chat:
        await chat.press(*"see @be")
        await chat.see("› bela.png")
        await chat.press("down")
        await chat.see("› beta.png")
        gate.set()
        await chat.see("deep/my_beta.png")
        await chat.see("› beta.png")
        await chat.press("enter")
        await attached(chat, "beta.png")


async def test_completions_follow_the_cursor(tmp_path: Path) -> None:
    pictures(tmp_path, "alpha.png", "albert.gif")
    async with opened() as chat:
        await chat.press(*"@alp")
        await chat.see("› alpha.png")
        assert "albert.gif" not in chat.flat
        await chat.press("left")
        await chat.see("› albert.gif")
        await chat.press("home")
        await chat.until(lambda: "alpha.png" not in chat.flat)


# -- the palette


async def test_enter_runs_the_command_that_the_palette_finds(chat: Chat) -> None:
    await chat.press("ctrl+p")
    await chat.see("Search for commands")
    await chat.see("or stop the answer")
    await chat.at_once(*"settings", "enter")
    await chat.see("Temperature")


# -- the setup's folder


class SmallDisk(ScriptedExporter):
    """There is no room in one folder, and asking for it takes until the gate opens."""

    asks: threading.Event

    def room(self, folder: Path) -> int:
        if folder.name != "small":
            return 40 * GIB
        assert self.asks.wait(PATIENCE_S), "nobody opened the gate"
        return 100 * MIB


async def test_enter_exports_only_where_the_folder_just_typed_has_room(
    gate: threading.Event,
) -> None:
    exporter = SmallDisk()
    exporter.asks = gate
    async with setting_up(exporter) as chat:
        await looked_up(chat)
        put(chat, "folder", "small")
        await chat.at_once("enter", "enter")
        await chat.pilot.pause()
        assert setup_of(chat).state == "form"
        gate.set()
        await chat.see("✗ Folder: 630.0 MiB are needed, 100.0 MiB are free there")
        assert len(exporter.jobs) == 1
        put(chat, "folder", "large")
        await chat.at_once("enter", "enter")
        await chat.see("is ready")
        assert len(exporter.jobs) == 2


# -- what they share


@pytest.mark.parametrize(
    ("steps", "done"),
    [
        ("then:a=1 ask:a arrived then:a=2", "12"),
        ("ask:a then:a=1 then:a=2", ""),
        ("ask:a then:a=1 then:a=2 arrived", "12"),
        ("ask:a then:ab=1 ask:ab arrived", "1"),
        ("ask:a then:a=1 ask:b then:b=2 forget ask:b arrived", ""),
        ("ask:a arrived ask:a then:a=1", ""),
    ],
)
def test_what_waits_is_done_in_order_once_the_newest_answer_for_its_text_is_there(
    steps: str, done: str
) -> None:
    query, questions, did = LatestQuery(), list[int](), list[str]()
    for step in steps.split():
        name, _, text = step.partition(":")
        match name:
            case "ask":
                questions.append(query.ask(text))
            case "then":
                text, _, mark = text.partition("=")
                query.then(text, partial(did.append, mark))
            case _:
                getattr(query, name)()
        assert [query.is_newest(it) for it in questions[:-1]] == [False] * len(questions[:-1])
    assert "".join(did) == done
