"""Files whose text goes into a question: as chips before it is sent, folded after."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from q35chat.tui.chat.drafts import Drafts
from q35chat.tui.chat.paste import file_paths, typed_files
from q35chat.tui.widgets.turns import FileCard
from tests.doubles.scripted_workspace import MODEL, ScriptedWorkspace
from tests.tui.on_the_way import open_long, paste, ways
from tests.tui.support import Chat, opened, picture_file

CODE = "def f():\n    return 1"


def source(folder: Path, name: str = "tool.py", text: str = CODE) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def files(chat: Chat) -> list[str]:
    return [file.name for file in chat.screen.composer.chips.files]


async def test_a_dropped_file_is_a_chip_with_its_slots_and_goes_into_the_question(
    chat: Chat, tmp_path: Path
) -> None:
    await paste(chat, source(tmp_path))
    await chat.see("▤ tool.py 2 lines 13 slots ×")
    await chat.write("What does it do?")
    await chat.press("enter")
    await chat.until(lambda: len(chat.conversation.steps) == 2)
    await chat.idle()
    asked = chat.conversation.steps[0].turn.text
    assert asked == f"File `tool.py`:\n\n```python\n{CODE}\n```\n\nWhat does it do?"
    assert chat.conversation.title == "What does it do?"
    await chat.see("▸ ▤ tool.py 2 lines")
    await chat.press("alt+up")
    await chat.see("you ▤ tool.py What does it do?")
    await chat.press("escape")
    assert "return 1" not in chat.flat
    await chat.click(FileCard)
    await chat.see("return 1")


async def test_a_question_with_a_file_is_changed_with_its_chip(chat: Chat, tmp_path: Path) -> None:
    await paste(chat, source(tmp_path))
    await chat.until(lambda: files(chat) == ["tool.py"])
    await chat.ask("What?")
    await chat.press("up")
    assert chat.written == "What?"
    await chat.press("ctrl+e")
    await chat.until(lambda: files(chat) == ["tool.py"])
    assert chat.written == "What?"
    await chat.press("escape")


async def test_a_path_that_is_typed_or_completed_attaches_a_text(
    chat: Chat, tmp_path: Path
) -> None:
    source(tmp_path, "notes.md", "# Notes")
    await chat.press(*"./notes.md ")
    await chat.until(lambda: files(chat) == ["notes.md"])
    source(tmp_path, "more.md", "# More")
    await chat.press(*"@mor")
    await chat.see("› more.md")
    await chat.press("tab")
    await chat.until(lambda: files(chat) == ["notes.md", "more.md"])
    assert chat.written.strip() == ""


async def test_a_folder_and_a_binary_are_refused_by_name(chat: Chat, tmp_path: Path) -> None:
    binary = tmp_path / "program.bin"
    binary.write_bytes(b"\x7fELF\0\0")
    chat.screen.draft.attach((binary,))
    await chat.hear("program.bin is no text in UTF-8")
    (tmp_path / "folder").mkdir()
    await chat.press(*f"/file {tmp_path / 'folder'}", "enter")
    await chat.hear("folder is a folder; attach a file in it")
    assert not chat.screen.composer.chips.chips


async def test_a_file_that_is_too_large_says_by_how_much_and_offers_its_beginning(
    tmp_path: Path,
) -> None:
    path = source(tmp_path, "long.txt", "\n".join(f"line number {n}" for n in range(2_000)))
    async with opened(ScriptedWorkspace()) as chat:
        await open_long(chat, 1_000)
        chat.screen.draft.attach((path,))
        await chat.see("This file does not fit")
        await chat.see("1,048 are free")
        assert ways(chat)[0].startswith("Attach its beginning (the first ")
        await chat.press("f5")
        await chat.until(lambda: files(chat) == ["long.txt"])
        (part,) = chat.screen.composer.chips.files
        assert 0 < part.slots < 1_048
        await chat.write("Sum it up")
        await chat.see(" left for the answer")


async def test_the_chip_of_a_part_of_a_file_shows_its_cost_and_its_cross_beside_the_meters(
    tmp_path: Path,
) -> None:
    lines = "\n".join(f"line number {n}" for n in range(2_000))
    path = source(tmp_path, "minutes of a meeting.txt", lines)
    async with opened(ScriptedWorkspace(), size=(100, 30)) as chat:
        chat.screen.draft.attach((path,))
        await chat.see("This file does not fit")
        await chat.press("f5")
        await chat.see("of 2,000 lines")
        await chat.see("slots ×")


async def test_a_draft_keeps_its_files_when_the_program_is_left(tmp_path: Path) -> None:
    path = source(tmp_path)
    async with opened() as chat:
        await paste(chat, path)
        await chat.until(lambda: files(chat) == ["tool.py"])
        await chat.write("later")
        await chat.press("ctrl+q")
    async with opened(drafts=Drafts.at_home()) as chat:
        await chat.until(lambda: files(chat) == ["tool.py"])
        assert chat.written == "later"


def test_a_paste_of_words_is_no_file_and_a_whole_path_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source(tmp_path, "notes.md")
    assert file_paths("notes.md") == ()
    assert file_paths(str(path)) == (path,)
    assert file_paths(f"see {path}") == ()
    assert typed_files(f"read {path}, please") == ("read, please", (path,))
    assert typed_files("notes.md is good") == ("notes.md is good", ())
    monkeypatch.chdir(tmp_path)
    assert typed_files("@notes.md is good, @all") == ("is good, @all", (Path("notes.md"),))
    picture = picture_file(tmp_path)
    assert file_paths(f"{picture}\n{path}") == (picture, path)


async def test_a_paste_is_a_path_or_a_text_and_never_both(chat: Chat, tmp_path: Path) -> None:
    path = source(tmp_path)
    await chat.at_once(events.Paste(f"{path} is what I mean"))
    assert chat.written == f"{path} is what I mean"
    assert not files(chat)
    assert chat.conversation.model == MODEL
