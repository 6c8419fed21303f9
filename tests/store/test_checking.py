"""A large file is used before all of it was looked at, and is as safe as a small one."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.chat.history.records import StoreBusyError
from q35chat.errors import StoreError
from q35chat.store import Store, checking, opening
from q35chat.store.migrations import SCHEMA
from q35chat.store.opening import NAME
from tests.store.builders import conversation, later, user
from tests.store.damages import force

WAIT_S = 30.0
ENDLESS = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any file is a large one; `tmp_path` has one with a chat."""
    with Store(tmp_path) as store:
        turns = tuple(user(f"u{number}", None, "x" * 900) for number in range(50))
        store.create(conversation(head="u49"), turns)
    monkeypatch.setattr(opening, "AT_ONCE", 0)


def damage(folder: Path) -> bytes:
    """Break the last page, which holds turns; what the file is then."""
    data = bytearray((folder / NAME).read_bytes())
    data[-4096:] = b"\xa5" * 4096
    (folder / NAME).write_bytes(data)
    return bytes(data)


def checked(store: Store) -> Store:
    """`store`, once all of its file was looked at."""
    assert store._database._check is not None
    store._database._check.wait()
    return store


def copied_in_use(folder: Path) -> Path:
    """A copy of the store with one more chat, made while it was open."""
    copy = folder / "killed"
    copy.mkdir()
    with Store(folder) as store:
        checked(store).create(conversation("c2"), ())
        for part in folder.glob(f"{NAME}*"):
            shutil.copy(part, copy)
    return copy


def assert_set_aside(folder: Path, left: bytes) -> None:
    with Store(folder) as store:
        (aside,) = folder.glob(f"{NAME}.damaged-*[0-9]")
        assert str(aside) in store.message
        assert "is kept as" in store.message
        assert aside.read_bytes() == left
        assert store.listed() == []
        store.create(conversation(), ())
    with Store(folder) as store:
        assert checked(store).message == ""
        assert [one.id for one in store.listed()] == ["c1"]


class Held:
    """Checks that go on until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        self._check = checking.check
        monkeypatch.setattr(checking, "check", self._held)

    def _held(self, connection: sqlite3.Connection, *, thorough: bool = False) -> None:
        self.begun.set()
        assert self.free.wait(WAIT_S)
        self._check(connection, thorough=thorough)


def test_a_whole_file_is_looked_at_and_nothing_is_said(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert len(checked(store).load("c1")[1]) == 50
        assert store.message == ""
        store.rename("c1", "New")
    assert not checking.is_marked(tmp_path / NAME)


def test_damage_is_told_nothing_is_written_and_the_next_start_sets_the_file_aside(
    tmp_path: Path,
) -> None:
    left = damage(tmp_path)
    with Store(tmp_path) as store:
        assert store.record("c1").title == "A chat"
        with pytest.raises(StoreError, match=r"damaged.*Start q35chat again"):
            store.create(conversation("c2"), ())
        assert "Start q35chat again" in store.message
        assert len(store.message.splitlines()) == 1
    assert_set_aside(tmp_path, left)


def test_nothing_is_written_before_all_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    left = damage(tmp_path)
    with Store(tmp_path) as store:
        assert held.begun.wait(WAIT_S)
        assert store.record("c1").title == "A chat"
        with pytest.raises(StoreBusyError, match="being checked"):
            store.save(later(conversation(), None, 300.0), (), wait=False)
        failures: list[StoreError] = []

        def write() -> None:
            with pytest.raises(StoreError) as raised:
                store.rename("c1", "New")
            failures.append(raised.value)

        writer = threading.Thread(target=write)
        writer.start()
        held.free.set()
        writer.join(WAIT_S)
        assert "damaged" in str(failures[0])
    assert_set_aside(tmp_path, left)


def test_a_file_that_was_not_closed_is_looked_at_before_its_use(tmp_path: Path) -> None:
    killed = copied_in_use(tmp_path)
    damage(killed)
    with Store(killed) as store:
        assert "is kept as" in store.message
    with Store(tmp_path) as store:
        assert {one.id for one in store.listed()} == {"c1", "c2"}


def test_a_file_that_was_not_closed_and_is_whole_is_gone_on_with(tmp_path: Path) -> None:
    killed = copied_in_use(tmp_path)
    with Store(killed) as store:
        assert store.message == ""
        assert {one.id for one in store.listed()} == {"c1", "c2"}


def test_damage_that_shows_in_use_makes_the_next_start_set_the_file_aside(
    tmp_path: Path,
) -> None:
    store = checked(Store(tmp_path))
    left = damage(tmp_path)
    store._database._connection.execute("PRAGMA shrink_memory")
    with pytest.raises(StoreError, match=r"damaged.*Start q35chat again"):
        store.load("c1")
    assert "Start q35chat again" in store.message
    store.close()
    assert_set_aside(tmp_path, left)


def test_damage_that_was_seen_and_is_none_is_forgotten(tmp_path: Path) -> None:
    checking.mark(tmp_path / NAME)
    with Store(tmp_path) as store:
        assert store.message == ""
        assert len(store.load("c1")[1]) == 50
    assert not checking.is_marked(tmp_path / NAME)


def test_what_was_seen_is_looked_for_in_the_indexes_too(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute("PRAGMA writable_schema = on")
        connection.execute("UPDATE sqlite_schema SET rootpage = 2 WHERE type = 'index'")
    connection.close()
    checking.mark(tmp_path / NAME)
    with Store(tmp_path) as store:
        assert "is kept as" in store.message


def test_values_of_a_wrong_type_are_no_damage_of_the_file_and_the_next_start_mends_them(
    tmp_path: Path,
) -> None:
    force(tmp_path / NAME, "UPDATE turns SET created = 'x' WHERE id = 'u7'")
    with Store(tmp_path) as store:
        checked(store).create(conversation("c2"), ())
        assert len(store.load("c1")[1]) == 50
    assert checking.is_marked(tmp_path / NAME)
    with Store(tmp_path) as store:
        left_out = replace(store.load("c1")[1][7], left_out=True)
        assert "its dates" in store.message
        store.save(conversation(head="u49"), (left_out,))
        assert {one.id for one in store.listed()} == {"c1", "c2"}


def test_a_file_that_is_to_be_rewritten_is_looked_at_before(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA - 1}")
    connection.close()
    left = damage(tmp_path)
    assert_set_aside(tmp_path, left)


def test_closing_ends_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def endless(connection: sqlite3.Connection) -> None:
        begun.set()
        connection.execute(ENDLESS).fetchone()

    monkeypatch.setattr(checking, "check", endless)
    store = Store(tmp_path)
    assert begun.wait(WAIT_S)
    store.close()
    assert store.message == ""
    assert not checking.is_marked(tmp_path / NAME)
    assert [path.name for path in tmp_path.glob(f"{NAME}*")] == [NAME]


def test_a_check_that_cannot_be_made_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("no memory")

    monkeypatch.setattr(checking, "check", refused)
    with Store(tmp_path) as store:
        store.rename("c1", "New")
        assert store.message == ""
    assert "was not checked: no memory" in caplog.text


def test_a_mark_that_cannot_be_left_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checking.mark(tmp_path / "gone" / NAME)
    assert "cannot be remembered" in caplog.text


def test_a_process_that_has_a_file_open_which_is_set_aside_harms_the_new_one_not(
    tmp_path: Path,
) -> None:
    left = damage(tmp_path)
    first = checked(Store(tmp_path))
    with Store(tmp_path) as second:
        assert "is kept as" in second.message
        second.create(conversation("fresh"), ())
        first.close()
        second.create(conversation("fresher"), ())
    with Store(tmp_path) as store:
        assert {one.id for one in store.listed()} == {"fresh", "fresher"}
    (aside,) = tmp_path.glob(f"{NAME}.damaged-*[0-9]")
    assert aside.read_bytes() == left
