"""What was written and attached when the program ends, and what comes back of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from q35chat.chat.values import Attachment
from q35chat.tui.drafts import Drafts, KeptPicture
from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_workspace import PATIENCE_S, ScriptedConversation, ScriptedWorkspace
from tests.tui.on_the_way import pictures, read, stored, written
from tests.tui.support import Chat, opened, picture_file


async def left_with(chat: Chat, *files: Path) -> None:
    """Attach pictures, write something, quit."""
    chat.screen.attaching.add(files)
    await read(chat, *(file.name for file in files))
    await chat.write("what is this?")
    await chat.press("ctrl+q")
    await chat.until(lambda: not chat.app.is_running)


def attach_last_first(monkeypatch: pytest.MonkeyPatch, paths: Sequence[Path]) -> None:
    """From now on each of these pictures is read after the one that follows it."""
    attach = ScriptedConversation.attach
    ended = {path: threading.Event() for path in paths}
    following = dict(pairwise(paths))

    def late(conversation: ScriptedConversation, path: Path) -> Attachment:
        if path in following:
            assert ended[following[path]].wait(PATIENCE_S)
        try:
            return attach(conversation, path)
        finally:
            ended[path].set()

    monkeypatch.setattr(ScriptedConversation, "attach", late)


async def test_the_pictures_of_a_draft_come_back_after_quitting(tmp_path: Path) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await left_with(chat, picture_file(tmp_path), picture_file(tmp_path, "b.png", (96, 96)))
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await read(chat, "house.png", "b.png")
        assert written(chat) == "what is this?"
        assert not chat.said


async def test_a_picture_without_a_text_comes_back_too(tmp_path: Path) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    [norway] = stored(workspace, "Norway")
    async with opened(workspace, drafts=Drafts(file)) as chat:
        chat.screen.loader.open(norway.id)
        await chat.until(lambda: chat.screen.ready is norway)
        chat.screen.attaching.add([picture_file(tmp_path)])
        await read(chat, "house.png")
        await chat.press("ctrl+q")
    async with opened(workspace, drafts=Drafts(file)) as chat:
        assert pictures(chat) == []
        chat.screen.loader.open(norway.id)
        await read(chat, "house.png")


async def test_the_pictures_of_a_draft_that_are_gone_are_named_in_their_order_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    paths = [
        picture_file(tmp_path, f"{name}.png", (32 * (7 + i), 32)) for i, name in enumerate("abcde")
    ]
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await left_with(chat, *paths)
    for path in paths[1:]:
        path.unlink()
    attach_last_first(monkeypatch, paths)
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await chat.see("✗ The draft's pictures b.png, c.png, d.png, e.png are gone; attach them")
        await read(chat, "a.png")
        assert written(chat) == "what is this?"
        assert len(chat.screen.messages.said) == 1


async def test_a_picture_whose_file_was_never_known_is_named_too(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "drafts.json")
    drafts.put("new", "look", (KeptPicture("old [red].png"),))
    async with opened(drafts=drafts) as chat:
        await chat.see("✗ The draft's picture old [red].png is gone; attach it again")
        assert written(chat) == "look"


@pytest.mark.parametrize(
    ("draft", "change", "kept"),
    [
        ("", " and more", "first words and more"),
        ("half a thought", " and more", "half a thought\nfirst words and more"),
        ("half a thought", "", "half a thought"),
    ],
)
async def test_a_question_being_changed_comes_back_behind_the_draft(
    tmp_path: Path, draft: str, change: str, kept: str
) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await chat.ask("first words")
        await chat.write(draft)
        await chat.press("ctrl+e")
        await chat.write(change)
        session = chat.conversation.id
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    async with opened(workspace, drafts=Drafts(file), opening=Opening(session)) as chat:
        await chat.until(lambda: written(chat) == kept)


async def test_what_was_sent_or_taken_away_does_not_come_back(tmp_path: Path) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    async with opened(workspace, drafts=Drafts(file)) as chat:
        chat.screen.attaching.add([picture_file(tmp_path)])
        await read(chat, "house.png")
        await chat.ask("what is this?")
        chat.screen.attaching.add([picture_file(tmp_path)])
        await read(chat, "house.png")
        await chat.press("backspace")
        await read(chat)
        session = chat.conversation.id
        await chat.press("ctrl+q")
    again = Drafts(file)
    assert [again.pictures(key) for key in (session, "new")] == [(), ()]


def test_drafts_of_earlier_versions_are_read_and_written_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "drafts.json"
    file.write_text('{"c1": "half a thought"}')
    drafts = Drafts(file)
    assert (drafts.get("c1"), drafts.pictures("c1")) == ("half a thought", ())
    drafts.put("c2", "with one", (KeptPicture("a.png", Path("/tmp/a.png")), KeptPicture("b.png")))
    drafts.save()
    assert json.loads(file.read_text())["c1"] == "half a thought"
    again = Drafts(file)
    assert (again.get("c2"), again.pictures("c2")) == ("with one", drafts.pictures("c2"))


@pytest.mark.parametrize(
    "document",
    [
        "[" * 100_000,
        "[]",
        '{"c1": 7}',
        '{"c1": {"text": 7, "pictures": {}}}',
        '{"c1": {"pictures": [7, null, {}, [], {"name": " ", "path": ""}]}}',
        '{"c1": {"pictures": [{"path": "a.png"}, {"path": "/a\\u0000"}, {"path": "/\\ud800"}]}}',
        '{"c1": {"pictures": [{"name": 1, "path": "/' + "a" * 5_000 + '"}]}}',
        '{"c1": {"pictures": [{"path": true}]}}',
    ],
)
def test_nothing_in_the_file_of_drafts_is_trusted(document: str, tmp_path: Path) -> None:
    file = tmp_path / "drafts.json"
    file.write_text(document)
    drafts = Drafts(file)
    assert (drafts.get("c1"), drafts.pictures("c1")) == ("", ())


def test_too_many_drafts_and_pictures_are_cut_and_texts_can_be_shown_and_kept(
    tmp_path: Path,
) -> None:
    file = tmp_path / "drafts.json"
    many = [{"name": f"{number}.png", "path": f"/{number}.png"} for number in range(1_000)]
    entries: dict[str, object] = {f"c{number}": "text" for number in range(1_000)}
    file.write_text(json.dumps({**entries, "last": {"text": "\x1b[2J\ud800", "pictures": many}}))
    drafts = Drafts(file)
    assert (drafts.get("c949"), drafts.get("c998")) == ("", "text")
    assert len(drafts.pictures("last")) == Drafts.MOST_PICTURES
    assert drafts.get("last").isprintable()
    drafts.save()
    assert Drafts(file).get("last") == drafts.get("last")
