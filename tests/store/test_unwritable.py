"""A store that nothing can be written to is read, and says what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from q35chat.chat.history.records import StoreWriteError
from q35chat.errors import StoreError
from q35chat.store import Store
from q35chat.store.opening import NAME
from tests.store.builders import answer, conversation, user
from tests.support.disk import full_after

ROOM = "free space"


def written(folder: Path) -> None:
    with Store(folder) as store:
        turns = (user("u", None, "precious"), answer("a", "u", "words"))
        store.create(conversation(head="a"), turns)


def check_readable(store: Store, out: Path) -> None:
    assert [found.id for found in store.listed()] == ["c1"]
    assert "precious" in store.markdown("c1")
    assert [hit.turn for hit in store.search("words")] == ["a"]
    assert store.resolve("c") == store.latest() == "c1"
    assert ROOM in store.message
    assert len(store.message.splitlines()) == 1


WRITES: list[Callable[[Store], object]] = [
    lambda store: store.rename("c1", "other"),
    lambda store: store.delete("c1"),
    lambda store: store.create(conversation("c2"), ()),
    lambda store: store.save(conversation("c1"), ()),
    lambda store: store.answering("c1").__enter__(),
]


def check_refused(store: Store) -> None:
    for write in WRITES:
        with pytest.raises(StoreWriteError, match=ROOM):
            write(store)


def test_a_full_disk_is_read_and_every_change_says_what_to_do(tmp_path: Path) -> None:
    written(tmp_path)
    with full_after(0), Store(tmp_path) as store:
        check_readable(store, tmp_path)
        check_refused(store)
    with Store(tmp_path) as store:
        assert store.message == ""
        assert [found.title for found in store.listed()] == ["A chat"]


def test_on_a_full_disk_there_is_no_chat_yet(tmp_path: Path) -> None:
    for name in ("locks", "pictures"):
        (tmp_path / name).mkdir()
    with full_after(0), Store(tmp_path) as store:
        assert store.listed() == []
        with pytest.raises(StoreWriteError, match=ROOM):
            store.create(conversation(), ())


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a folder one that cannot be written; SQLite writes nothing, for lack of room."""

    def make(folder: Path) -> None:
        real = os.open

        def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR) and folder in Path(path).parents:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            return real(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", refuse)

    return make


def test_a_read_only_folder_is_read_and_every_change_says_what_to_do(
    tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    written(tmp_path)
    read_only(tmp_path)
    with full_after(0), Store(tmp_path) as store:
        assert "Read-only file system" in store.message
        check_readable(store, tmp_path)
        check_refused(store)


def test_a_read_only_folder_of_another_program_that_runs_is_read(
    tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    running = Store(tmp_path)
    running.create(conversation(head="a"), (user("u", None, "precious"), answer("a", "u", "words")))
    read_only(tmp_path)
    with full_after(0), Store(tmp_path) as store:
        check_readable(store, tmp_path)
    running.close()


def test_what_stands_in_the_log_alone_is_never_left_out_in_silence(
    tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    with Store(tmp_path) as store:
        store.create(conversation(head="u"), (user("u", None, "precious"),))
        log = (tmp_path / f"{NAME}-wal").read_bytes()
    (tmp_path / f"{NAME}-wal").write_bytes(log)  # as a killed process leaves it
    read_only(tmp_path)
    with full_after(0), pytest.raises(StoreError, match="Read-only file system"):
        Store(tmp_path)


def test_an_older_schema_is_not_read_as_a_newer_one(
    tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute("CREATE TABLE conversations (id)")
    connection.close()
    read_only(tmp_path)
    with full_after(0), pytest.raises(StoreError, match="Read-only file system"):
        Store(tmp_path)
