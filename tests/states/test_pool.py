from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from q35chat import files
from q35chat.states.file import Array
from q35chat.states.listing import ANYBODY, StateName, drop_states, stored_states
from q35chat.states.pool import SPARE, StatePool, name_of

MODEL, OTHER = "a" * 16, "b" * 16
KEYS: Array = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int64)
ROWS = np.zeros(4096, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "states"


@pytest.fixture
def pool(folder: Path) -> StatePool:
    return StatePool(folder, 1 << 20)


def never() -> bool:
    return False


def put(
    pool: StatePool,
    count: int,
    owner: str = "chat",
    model: str = MODEL,
    should_stop: Callable[[], bool] = never,
    keys: Array = KEYS,
) -> StateName:
    keys = keys[:count]
    name = name_of(owner, model, keys)
    pool.write(name, [("keys", keys), ("rows", ROWS)], should_stop)
    return name


def counts(folder: Path) -> list[int]:
    return sorted(state.name.count for state in stored_states(folder))


def test_the_longest_beginning_of_a_prompt_is_found_whoever_owns_it(pool: StatePool) -> None:
    put(pool, 2, ANYBODY), put(pool, 7, model=OTHER)
    other = KEYS.copy()
    other[4] = 0
    put(pool, 6, keys=other)
    found = put(pool, 5, "another chat")

    assert pool.longest(MODEL, KEYS, 0) == found
    assert pool.longest(MODEL, KEYS, 5) is None
    shorter = pool.longest(MODEL, KEYS[:5], 0)
    assert shorter is not None
    assert shorter.count == 2
    assert pool.longest(MODEL, KEYS[1:], 0) is None


def test_a_state_is_read_as_it_was_written(pool: StatePool) -> None:
    name = put(pool, 5)
    arrays = pool.read(name)
    assert arrays["keys"].tolist() == KEYS[:5].tolist()
    assert arrays["rows"].tobytes() == ROWS.tobytes()
    assert pool.keys(name).tolist() == KEYS[:5].tolist()


def test_of_more_than_the_limit_those_used_longest_ago_go(folder: Path) -> None:
    pool = StatePool(folder, 3 * 5000)
    for count in (1, 2, 3):
        put(pool, count)
    for state in stored_states(folder):
        os.utime(folder / str(state.name), (state.name.count, state.name.count))
    pool.read(name_of("chat", MODEL, KEYS[:1]))
    put(pool, 4)

    assert counts(folder) == [1, 3, 4]


def test_a_state_larger_than_the_limit_is_not_kept(folder: Path) -> None:
    put(StatePool(folder, 100), 3)
    assert list(folder.iterdir()) == []


def test_the_disk_is_never_filled(
    pool: StatePool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pool, 1), put(pool, 2)
    size = stored_states(folder)[0].size
    os.utime(folder / str(name_of("chat", MODEL, KEYS[:1])), (1, 1))

    def disk_usage(_: Path) -> SimpleNamespace:
        held = sum(state.size for state in stored_states(folder))
        return SimpleNamespace(free=SPARE + size + 2 * size - held - 1)

    monkeypatch.setattr("shutil.disk_usage", disk_usage)
    put(pool, 3)
    assert counts(folder) == [2, 3]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    put(pool, 4)
    assert list(folder.iterdir()) == []


def test_only_its_owner_can_look_into_the_folder(pool: StatePool, folder: Path) -> None:
    put(pool, 1)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_stopped_state_is_not_there(pool: StatePool, folder: Path) -> None:
    put(pool, 3, should_stop=lambda: True)
    assert list(folder.iterdir()) == []


def test_a_damaged_state_is_removed(pool: StatePool, folder: Path) -> None:
    name = put(pool, 3)
    path = folder / str(name)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="checksum"):
        pool.read(name)
    assert not pool.has(name)


def test_a_state_of_other_tokens_than_its_name_says_is_removed(
    pool: StatePool, folder: Path
) -> None:
    name = put(pool, 3)
    false = name_of("chat", MODEL, KEYS[2:5])
    (folder / str(name)).rename(folder / str(false))
    with pytest.raises(ValueError, match="another state"):
        pool.read(false)
    assert counts(folder) == []


def test_what_no_process_of_ours_made_or_finished_is_removed(pool: StatePool, folder: Path) -> None:
    put(pool, 1)
    for name in ("dead.state.part", "evil.state", "../outside.state", "note.txt", "live.part"):
        (folder / name).write_text("?")
    with (folder / "live.part").open("rb") as held:
        files.lock(held.fileno())
        put(pool, 2)
        states = {str(state.name) for state in stored_states(folder)}
        left = {path.name for path in folder.iterdir()} - states
    assert left == {"note.txt", "live.part"}
    assert (folder.parent / "outside.state").exists()


@pytest.mark.parametrize("owner", ["../../up", "a/b", "", ANYBODY * 2, "x" * 65, "\udcff"])
def test_no_owner_leads_out_of_the_folder_and_his_states_are_dropped(
    pool: StatePool, folder: Path, owner: str
) -> None:
    put(pool, 1), put(pool, 2, ANYBODY)
    name = put(pool, 3, owner)
    assert (folder / str(name)).parent == folder
    assert counts(folder) == [1, 2, 3]
    assert [state.name for state in drop_states(folder, owner)] == [name]
    assert counts(folder) == [1, 2]
    assert len(drop_states(folder)) == 2


def test_a_folder_that_is_not_there_has_no_states(tmp_path: Path) -> None:
    assert stored_states(tmp_path / "none") == []
    assert StatePool(tmp_path / "none").longest(MODEL, KEYS, 0) is None
