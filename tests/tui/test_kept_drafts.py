"""What was written and attached when the program ends, and what comes back of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import pytest

from q35chat.chat.values import Attachment
from q35chat.files import replace_file
from q35chat.tui.chat import drafts as kept
from q35chat.tui.chat.drafts import Drafts, KeptPicture
from q35chat.tui.screens.chat import Opening
from tests.doubles.scripted_backend import PATIENCE_S
from tests.doubles.scripted_workspace import ScriptedConversation, ScriptedWorkspace
from tests.tui.on_the_way import read
from tests.tui.support import Chat, opened, picture_file


async def leave(chat: Chat) -> None:
    await chat.press("ctrl+q")
    await chat.until(lambda: not chat.app.is_running)


async def left_with(chat: Chat, *files: Path) -> None:
    """Attach pictures, write something, quit."""
    chat.screen.draft.attach(files)
    await read(chat, *(file.name for file in files))
    await chat.write("what is this?")
    await leave(chat)


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
        assert chat.written == "what is this?"
        assert not chat.said


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
        assert chat.written == "what is this?"
        assert len(chat.screen.messages.said) == 1


async def test_a_picture_whose_file_was_never_known_is_named_too(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "drafts.json")
    drafts.put("new", "look", (KeptPicture("old [red].png"),))
    async with opened(drafts=drafts) as chat:
        await chat.see("✗ The draft's picture old [red].png is gone; attach it again")
        assert chat.written == "look"


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
        await leave(chat)
    async with opened(workspace, drafts=Drafts(file), opening=Opening(session)) as chat:
        await chat.until(lambda: chat.written == kept)


async def test_what_was_sent_or_taken_away_does_not_come_back(tmp_path: Path) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await chat.attach(picture_file(tmp_path))
        await chat.ask("what is this?")
        await chat.attach(picture_file(tmp_path))
        await chat.press("backspace")
        await read(chat)
        session = chat.conversation.id
        await leave(chat)
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


# -- several windows, one file


def windows(file: Path, **drafts: str) -> tuple[Drafts, Drafts]:
    """Two windows opened over the same drafts."""
    first = Drafts(file)
    for key, text in drafts.items():
        first.put(key, text)
    first.save()
    return Drafts(file), Drafts(file)


def put(drafts: Drafts, key: str, text: str) -> None:
    drafts.put(key, text)
    drafts.save()


def texts(file: Path, *keys: str) -> list[str]:
    drafts = Drafts(file)
    return [drafts.get(key) for key in keys]


@pytest.mark.parametrize(
    ("before", "first", "second", "after"),
    [
        pytest.param({"c1": "a"}, {"c2": "b", "c1": ""}, {"c3": "c", "c4": "d"},
                     {"c2": "b", "c3": "c", "c4": "d"}, id="what the other has saved stays"),
        pytest.param({"c1": "a", "c2": "b"}, {"c1": ""}, {"c3": "c"},
                     {"c2": "b", "c3": "c"}, id="what the other has forgotten stays away"),
        pytest.param({"c1": "a"}, {"c1": "ab"}, {"c1": ""},
                     {"c1": "ab"}, id="what the other has written on is not forgotten"),
        pytest.param({"c1": "a"}, {"c1": ""}, {"c1": "ab"},
                     {"c1": "ab"}, id="what is written on here is the newest"),
    ],
)  # fmt: skip
def test_two_windows_that_save_one_after_the_other_keep_what_each_has_written(
    before: dict[str, str],
    first: dict[str, str],
    second: dict[str, str],
    after: dict[str, str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "drafts.json"
    for drafts, changes in zip(windows(file, **before), (first, second), strict=True):
        for key, text in changes.items():
            put(drafts, key, text)
    assert json.loads(file.read_text()) == after


def test_a_draft_changed_and_changed_back_is_left_to_the_window_that_changed_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "drafts.json"
    one, other = windows(file, c1="a")
    other.put("c1", "a and b")
    put(one, "c1", "a and c")
    put(other, "c1", "a")
    assert texts(file, "c1") == ["a and c"]


def test_many_windows_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "drafts.json"
    all_drafts = [Drafts(file) for _ in range(8)]

    def write(number: int) -> None:
        for count in range(5):
            put(all_drafts[number], f"c{number}-{count}", "text")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len(json.loads(file.read_text())) == 40


def test_a_file_broken_meanwhile_is_not_trusted_and_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "drafts.json"
    one, other = windows(file, c1="old")
    file.write_text('{"c1": {"pictures": 7}, "c2": ["x"], "c3": "whole"}')
    put(one, "c4", "mine")
    assert json.loads(file.read_text()) == {"c3": "whole", "c4": "mine"}
    file.write_text("{broken")
    put(other, "c5", "other")
    assert json.loads(file.read_text()) == {"c5": "other"}


def test_a_file_that_cannot_be_read_now_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "drafts.json"
    one, _ = windows(file, c1="old")
    one.put("c2", "mine")

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(PermissionError):
            one.save()
    assert one.unsaved
    one.save()
    assert texts(file, "c1", "c2") == ["old", "mine"]


def test_an_earlier_save_that_is_late_never_replaces_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, begun, go_on = tmp_path / "drafts.json", threading.Event(), threading.Event()
    written: list[str] = []

    def late(path: Path, text: str, *, mode: int) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(PATIENCE_S)
        written.append(text)
        replace_file(path, text, mode=mode)

    monkeypatch.setattr(kept, "replace_file", late)
    drafts = Drafts(file)
    drafts.put("c1", "one")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(drafts.save)
        assert begun.wait(PATIENCE_S)
        drafts.put("c1", "one and two")
        second = pool.submit(drafts.save)
        wait([second], 0.2)  # it may begin, but must not write
        go_on.set()
        first.result(PATIENCE_S)
        second.result(PATIENCE_S)
    assert texts(file, "c1") == ["one and two"]
    assert [json.loads(text)["c1"] for text in written] == ["one", "one and two"]


async def test_a_save_that_failed_is_made_up_for_when_leaving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tried = tmp_path / "drafts.json", threading.Event()

    def refuse(*_: object, **__: object) -> None:
        tried.set()
        raise OSError(28, "No space left on device")

    async with opened(drafts=Drafts(file)) as chat:
        with monkeypatch.context() as patch:
            patch.setattr(kept, "replace_file", refuse)
            await chat.write("half a thought")
            chat.screen.draft.save()
            await chat.until(tried.is_set)
            await chat.until(lambda: not any(it.group == "drafts" for it in chat.app.workers))
        await leave(chat)
    assert texts(file, "new") == ["half a thought"]


async def test_the_draft_of_a_chat_goes_when_it_is_deleted(tmp_path: Path) -> None:
    workspace, file = ScriptedWorkspace(), tmp_path / "drafts.json"
    async with opened(workspace, drafts=Drafts(file)) as chat:
        await chat.ask("first words")
        session = chat.conversation.id
        await chat.write("a secret")
        await chat.new()
        await chat.until(lambda: session in file.read_text())
        await chat.press("ctrl+l")
        await chat.see("first words")
        await chat.press("delete", "escape")
        await chat.until(lambda: session not in file.read_text())
        await leave(chat)
    assert "a secret" not in file.read_text()


async def test_drafts_of_chats_that_are_gone_are_swept_at_the_start(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "drafts.json")
    drafts.put("new", "of a new chat")
    drafts.put("gone", "a secret")
    drafts.save()
    async with opened(drafts=Drafts(tmp_path / "drafts.json")) as chat:
        await chat.until(lambda: "a secret" not in (tmp_path / "drafts.json").read_text())
        assert chat.written == "of a new chat"


async def test_no_draft_is_swept_where_the_chat_file_is_damaged(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "drafts.json")
    drafts.put("perhaps", "a draft")
    drafts.save()
    workspace = ScriptedWorkspace(message="the chat file was set aside")
    async with opened(workspace, drafts=Drafts(tmp_path / "drafts.json")) as chat:
        await chat.hear("set aside")
        await chat.idle()
    assert "a draft" in (tmp_path / "drafts.json").read_text()


def test_a_draft_of_another_window_is_forgotten_with_its_chat(tmp_path: Path) -> None:
    here, there = (Drafts(tmp_path / "drafts.json") for _ in range(2))
    there.put("chat", "a secret")
    there.put("other", "kept")
    there.save()
    here.put("chat", "changed here")
    here.forget("chat")
    here.save()
    assert here.get("chat") == ""
    assert "chat" not in json.loads((tmp_path / "drafts.json").read_text())
    assert Drafts(tmp_path / "drafts.json").get("other") == "kept"
