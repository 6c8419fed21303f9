from __future__ import annotations

import numpy as np
import pytest

from q35chat.states.listing import StateName
from q35chat.states.memory import MemoryPool
from q35chat.states.pool import name_of

MODEL = "0" * 16
STATE = np.ones(100, np.float32)


def never() -> bool:
    return False


def keep(pool: MemoryPool, owner: str, *keys: int) -> StateName:
    """Keep a state of these keys."""
    array = np.array(keys, np.int64)
    name = name_of(owner, MODEL, array)
    pool.write(name, [("keys", array), ("past_x", STATE)], never)
    return name


def test_the_longest_beginning_is_found_whoever_owns_it() -> None:
    pool = MemoryPool(1 << 20)
    keep(pool, "a", 1, 2)
    longest = keep(pool, "b", 1, 2, 3)
    keep(pool, "c", 1, 2, 4)
    keys = np.array([1, 2, 3, 5], np.int64)
    assert pool.longest(MODEL, keys, 0) == longest
    assert pool.longest(MODEL, keys, 3) is None
    assert pool.longest("1" * 16, keys, 0) is None
    assert pool.of("b", MODEL) == [longest]


def test_what_was_used_longest_ago_goes_first() -> None:
    pool = MemoryPool(900)
    first, second = keep(pool, "a", 1), keep(pool, "b", 2)
    pool.read(first)
    third = keep(pool, "c", 3)
    assert [pool.has(name) for name in (first, second, third)] == [True, False, True]
    assert pool.nbytes <= 900


def test_what_is_kept_is_a_copy() -> None:
    pool = MemoryPool(1 << 20)
    keys, state = np.array([1], np.int64), STATE.copy()
    name = name_of("a", MODEL, keys)
    pool.write(name, [("keys", keys), ("past_x", state)], never)
    state[:] = 0
    assert pool.read(name)["past_x"].all()
    assert pool.keys(name).tolist() == [1]


def test_what_is_too_large_or_stopped_is_not_kept() -> None:
    pool, keys = MemoryPool(100), np.array([1], np.int64)
    name = name_of("a", MODEL, keys)
    assert not pool.write(name, [("keys", keys), ("past_x", STATE)], never)
    assert not MemoryPool(1 << 20).write(name, [("keys", keys)], lambda: True)
    with pytest.raises(ValueError, match="not there"):
        pool.read(name)
