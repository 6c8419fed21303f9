from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from q35chat.chat.history.records import StoreBusyError
from q35chat.errors import StoreError
from q35chat.states.listing import ANYBODY, stored_states
from q35chat.states.pool import name_of
from q35chat.store import Store
from q35chat.store.database import BUSY_SECONDS
from q35chat.store.folder import states_folder
from q35chat.store.opening import NAME
from tests.store.builders import SETTINGS, answer, conversation, later, picture, user


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def reopened(store: Store) -> Store:
    store.close()
    return Store(store.folder)


def test_a_conversation_reopens_as_it_was(store: Store) -> None:
    turns = (user("u", None, "What? 什么？", picture()), answer("a", "u", "A cat. 🐈"))
    store.create(conversation(head="a"), turns)
    record, found = reopened(store).load("c1")
    assert record == conversation(head="a")
    assert found == turns


def test_branches_keep_their_order_and_earlier_answers(store: Store) -> None:
    turns = (user("u", None, "q"), answer("b", "u", "first"), answer("a", "u", "second"))
    store.create(conversation(head="a"), turns)
    assert [turn.id for turn in reopened(store).load("c1")[1]] == ["u", "b", "a"]


def test_saving_again_replaces_a_turn_in_place(store: Store) -> None:
    first = answer("a", "u", "par")
    store.create(conversation(head="a"), (user("u", None, "q"), first, answer("b", "u", "other")))
    whole = replace(first, turn=replace(first.turn, text="partly done", finish="cancelled"))
    store.save(later(conversation(), "a", 300.0), (whole,))
    record, turns = reopened(store).load("c1")
    assert record.updated == 300.0
    assert turns[1] == whole
    assert len(turns) == 3


def test_every_save_raises_the_revision(store: Store) -> None:
    store.create(conversation(), ())
    before = store.record("c1").revision
    store.save(conversation(), ())
    store.rename("c1", "New")
    assert store.record("c1").revision == before + 2


def test_a_conversation_deleted_elsewhere_is_not_written_back(store: Store) -> None:
    store.create(conversation(), (user("u", None, "q"),))
    store.delete("c1")
    with pytest.raises(StoreError, match="deleted by another"):
        store.save(conversation(), (user("u", None, "q"),))
    assert store.listed() == []


def test_pictures_are_copied_once_and_survive_the_original(store: Store, tmp_path: Path) -> None:
    original = tmp_path / "cat.png"
    original.write_bytes(b"bytes of a cat")
    cat = picture(original.read_bytes())
    store.create(conversation(head="v"), (user("u", None, "a", cat, cat), user("v", "u", "b", cat)))
    original.unlink()
    loaded = reopened(store).load("c1")[1]
    assert [held.data for turn in loaded for held in turn.turn.attachments] == [cat.data] * 3
    files = [path for path in (store.folder / "pictures").rglob("*") if path.is_file()]
    assert files == [store.pictures.path(cat.sha256)]


@pytest.mark.parametrize("damage", [b"", b"something else"])
def test_an_altered_picture_is_empty_and_the_conversation_still_opens(
    store: Store, damage: bytes
) -> None:
    cat = picture()
    store.create(conversation(head="u"), (user("u", None, "see", cat),))
    store.pictures.path(cat.sha256).write_bytes(damage)
    (turn,) = store.load("c1")[1]
    assert turn.turn.attachments == (replace(cat, data=b""),)


def test_an_altered_picture_is_repaired_by_attaching_it_again(store: Store) -> None:
    cat = picture()
    store.create(conversation(head="u"), (user("u", None, "see", cat),))
    store.pictures.path(cat.sha256).write_bytes(b"damaged")
    store.save(conversation(head="v"), (user("v", "u", "again", cat),))
    assert all(turn.turn.attachments == (cat,) for turn in store.load("c1")[1])


def test_delete_removes_only_pictures_that_no_other_conversation_shows(store: Store) -> None:
    shared, own = picture(b"shared"), picture(b"own")
    store.create(conversation("c1", "u"), (user("u", None, "x", shared, own),))
    store.create(conversation("c2", "v"), (user("v", None, "y", shared),))
    store.delete("c1")
    assert store.pictures.read(own.sha256) is None
    assert store.load("c2")[1][0].turn.attachments == (shared,)


class Commits:
    """A connection whose next COMMIT does something first, and something afterwards."""

    def __init__(self, store: Store, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._database = store._database
        self._connection = store._database._connection
        self._before, self._after = before, after
        store._database._connection = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if statement != "COMMIT":
            return self._connection.execute(statement, *values)
        self._database._connection = self._connection
        self._before()
        done = self._connection.execute(statement)
        self._after()
        return done


def nothing() -> None:
    """For a side of a COMMIT that nothing is done on."""


def test_a_conversation_that_could_not_be_deleted_keeps_its_pictures(store: Store) -> None:
    own = picture(b"own")
    store.create(conversation("c1", "u"), (user("u", None, "x", own),))

    def full() -> None:
        raise sqlite3.OperationalError("disk full")

    Commits(store, full, nothing)
    with pytest.raises(StoreError, match="disk full"):
        store.delete("c1")
    assert reopened(store).load("c1")[1][0].turn.attachments == (own,)


def test_a_picture_that_another_conversation_shows_meanwhile_stays(store: Store) -> None:
    shared, other = picture(b"shared"), Store(store.folder)
    store.create(conversation("c1", "u"), (user("u", None, "x", shared),))
    turn = user("v", None, "y", shared)
    Commits(store, nothing, lambda: other.create(conversation("c2", "v"), (turn,)))
    store.delete("c1")
    assert other.load("c2")[1][0].turn.attachments == (shared,)


def test_a_picture_that_cannot_be_deleted_is_named_and_the_others_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, free = picture(b"held"), picture(b"free")
    store.create(conversation("c1", "u"), (user("u", None, "x", held, free),))
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == held.sha256:
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreError, match=f"{held.sha256} cannot be deleted: Permission denied"):
        store.delete("c1")
    assert store.listed() == []
    assert store.pictures.read(held.sha256) == held.data
    assert store.pictures.read(free.sha256) is None


def test_a_sweep_removes_what_no_row_names_and_nothing_else(store: Store) -> None:
    shown, lost = picture(b"shown"), picture(b"lost")
    store.create(conversation("c1", "u"), (user("u", None, "x", shown),))
    store.pictures.keep(lost.sha256, lost.data)  # killed before the row was written
    part = store.pictures.path(lost.sha256).with_name(f"{lost.sha256}.4711.part")
    part.write_bytes(b"half")
    foreign = part.with_name("notes.txt")
    foreign.write_text("mine")
    with store.answering("c1"), store.answering("new"):
        pass
    held, states = Store(store.folder), states_folder(store.folder)
    states.mkdir(exist_ok=True)
    of = [name_of(owner, "0" * 16, np.arange(3)) for owner in ("c1", ANYBODY, "deleted")]
    for name in of:
        (states / str(name)).write_bytes(b"state")
    with held.answering("begun"):
        store.sweep()
        assert {state.name for state in stored_states(states)} == set(of[:2])
        names = {path.name for path in (store.folder / "locks").iterdir()}
        assert names == {"c1.lock", "begun.lock"}
    files = [path for path in (store.folder / "pictures").rglob("*") if path.is_file()]
    assert set(files) == {store.pictures.path(shown.sha256), foreign}


def test_a_sweep_keeps_the_pictures_of_a_file_that_was_set_aside(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create(conversation("c1", "u"), (user("u", None, "x", picture()),))
    (tmp_path / NAME).write_bytes(b"damage" * 1000)
    with Store(tmp_path) as store:
        store.sweep()
        assert store.pictures.read(picture().sha256) == picture().data


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.rename("c1", "r\udcff"),
        lambda store: store.resolve("\udcff"),
        lambda store: store.save(conversation(head="u"), (user("u", None, "\udcff"),)),
    ],
)
def test_text_that_is_not_utf8_is_refused_in_one_line(
    store: Store, use: Callable[[Store], object]
) -> None:
    store.create(conversation(), ())
    with pytest.raises(StoreError, match=r"^'\\udcff' is no character of UTF-8"):
        use(store)
    store.rename("c1", "fine")


def test_a_save_that_is_not_to_wait_is_refused_while_others_write(store: Store) -> None:
    store.create(conversation(title="A chat"), ())
    other = Store(store.folder)
    with other._database.writing(), pytest.raises(StoreBusyError, match="another q35chat"):
        store.save(conversation(), (), wait=False)
    assert store.save(conversation(), (), wait=False) == 1
    (timeout,) = store._database._connection.execute("PRAGMA busy_timeout").fetchone()
    assert timeout == BUSY_SECONDS * 1000


def test_a_save_that_is_not_to_wait_is_refused_while_this_process_writes(store: Store) -> None:
    store.create(conversation(), ())
    refused = threading.Event()

    def try_it() -> None:
        with pytest.raises(StoreBusyError):
            store.save(conversation(), (), wait=False)
        refused.set()

    with store._database.writing():
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert refused.is_set()


def test_delete_is_refused_while_an_answer_is_written(store: Store) -> None:
    store.create(conversation(), ())
    other = Store(store.folder)
    with store.answering("c1"), pytest.raises(StoreError, match="answer is being written"):
        other.delete("c1")
    other.delete("c1")


def test_a_conversation_answers_in_one_place_at_a_time(store: Store) -> None:
    other = Store(store.folder)
    with store.answering("c1"):
        with other.answering("c2"):
            pass
        with pytest.raises(StoreError, match="answer is being written"), other.answering("c1"):
            pass
    with other.answering("c1"):
        pass


def test_sessions_come_latest_first_and_count_questions(store: Store) -> None:
    store.create(later(conversation("old"), None, 1.0), ())
    turns = (user("u", None, "q"), answer("a", "u", "x"), answer("b", "u", "y"))
    store.create(later(conversation("new"), "b", 2.0), turns)
    assert [(found.id, found.turns) for found in store.listed()] == [("new", 1), ("old", 0)]


def test_questions_of_the_branch_being_read_are_counted_and_not_of_every_version(
    store: Store,
) -> None:
    turns = (
        user("u", None, "q"),
        answer("a", "u", "x"),
        user("v", "a", "more"),
        answer("b", "u", "y"),
        user("w", None, "q, said otherwise"),
        answer("c", "w", "z"),
    )
    store.create(conversation(head="v"), turns)
    for head, questions in (("v", 2), ("b", 1), ("c", 1)):
        store.save(conversation(head=head), ())
        assert [found.turns for found in store.listed()] == [questions]


def test_rename_stays_when_the_conversation_is_saved_later(store: Store) -> None:
    store.create(conversation(title="first words"), ())
    store.rename("c1", "My title")
    store.save(conversation(title="first words"), ())
    assert store.load("c1")[0].title == "My title"


def test_resolve_takes_the_beginning_of_an_id(store: Store) -> None:
    store.create(conversation("abc1"), ())
    store.create(conversation("abd2"), ())
    assert store.resolve("abc") == "abc1"
    with pytest.raises(StoreError, match="Several"):
        store.resolve("ab")
    for unknown in ("", "x", "%", "_bc1"):
        with pytest.raises(StoreError, match="no chat"):
            store.resolve(unknown)


@pytest.mark.parametrize("call", ["load", "record", "delete"])
def test_an_unknown_conversation_is_named_in_the_message(store: Store, call: str) -> None:
    with pytest.raises(StoreError, match="no chat 'nope'"):
        getattr(store, call)("nope")
    with pytest.raises(StoreError, match="no chat 'nope'"):
        store.rename("nope", "title")


def test_a_failed_save_changes_nothing(store: Store) -> None:
    store.create(conversation(head="u"), (user("u", None, "q"),))
    orphan = user("x", "missing parent", "q")
    with pytest.raises(StoreError, match=r"does not fit what stands there\. Begin a new chat"):
        store.save(later(conversation(), "x", 999.0), (user("v", "u", "fine"), orphan))
    record, turns = store.load("c1")
    assert (record.head, record.updated, len(turns)) == ("u", 200.0, 1)


def test_text_with_nul_and_steering_characters_is_kept_exactly(store: Store) -> None:
    text = "a\x00b\x1b[31m\u202e\r\nc"
    store.create(conversation(title=text), (user("u", None, text),))
    record, turns = reopened(store).load("c1")
    assert record.title == text
    assert turns[0].turn.text == text


def test_settings_written_by_an_older_or_newer_build_get_defaults(store: Store) -> None:
    store.create(conversation(), ())
    with store._database.writing() as connection:
        connection.execute(
            "UPDATE conversations SET settings = ?", ('{"thinking": true, "unheard": 1}',)
        )
    settings = store.load("c1")[0].settings
    assert settings.thinking
    assert settings.sampling == replace(SETTINGS, sampling=type(SETTINGS.sampling)()).sampling
