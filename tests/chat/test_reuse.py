from __future__ import annotations

import numpy as np
import pytest

from q35chat.chat.prompt.reuse import PrefixCache
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from tests.doubles.numpy_session import NumpySession

SNAPSHOT_BYTES = (18 + 36) * 4


class Reader:
    """A decoder with a cache that reads keys as ids."""

    def __init__(self, budget: int = 1 << 20) -> None:
        self.decoder = OneGraphDecoder(NumpySession(capacity=32))
        self.cache = PrefixCache(self.decoder, budget)

    def read(self, *ids: int) -> Reader:
        start = self.decoder.used
        positions = np.tile(np.arange(start, start + len(ids)), (3, 1))
        extend(self.decoder, np.array(ids), positions)
        return self

    def keep(self) -> Reader:
        self.cache.keep()
        return self

    def back(self, *ids: int) -> int:
        wanted = self.cache.reusable(keys(*ids))
        assert self.cache.rewind(keys(*ids)) == wanted == self.decoder.used
        return wanted


def keys(*ids: int) -> Array:
    return np.array(ids, np.int64)


def test_nothing_is_reused_at_first() -> None:
    assert Reader().back(1, 2) == 0


def test_the_live_state_goes_on() -> None:
    assert Reader().read(1, 2).back(1, 2, 3) == 2


def test_one_token_is_always_left_to_read() -> None:
    reader = Reader().read(1).keep().read(2)

    assert reader.back(1, 2) == 1


def test_a_live_state_that_parts_from_the_prompt_is_forgotten() -> None:
    assert Reader().read(1, 2).back(1, 3, 4) == 0


def test_the_longest_fitting_snapshot_is_gone_back_to() -> None:
    reader = Reader().read(1).keep().read(2).keep().read(3).keep().read(4)

    assert reader.back(1, 2, 9, 9) == 2


def test_a_snapshot_of_other_pictures_does_not_fit() -> None:
    reader = Reader()
    extend(reader.decoder, np.array([1, 2]), np.zeros((3, 2), np.int64), keys=keys(1, -77))
    reader.keep().read(3)

    assert reader.back(1, -77, 4) == 2
    assert reader.back(1, -78, 4) == 0


def test_going_back_gives_the_same_logits_as_reading_from_the_start() -> None:
    reader = Reader().read(1, 2).keep().read(3, 4)
    reader.back(1, 2, 5)

    fresh = Reader().read(1, 2, 5)
    reader.read(5)
    np.testing.assert_array_equal(reader.decoder.logits(), fresh.decoder.logits())


def test_a_snapshot_dies_when_its_slots_are_written_again() -> None:
    reader = Reader().read(1).keep().read(2, 3).keep()
    reader.back(1, 9)
    reader.read(9, 3)

    assert [kept.count for kept in reader.cache.snapshots] == [1]
    assert reader.back(1, 2, 3, 4) == 1


def test_the_same_place_is_kept_once() -> None:
    reader = Reader().read(1).keep().keep()

    assert len(reader.cache.snapshots) == 1


@pytest.mark.parametrize("room", [0, 1, 3])
def test_over_the_budget_the_oldest_are_dropped(room: int) -> None:
    reader = Reader(budget=room * (SNAPSHOT_BYTES + 8 * 8))
    for token in range(1, 7):
        reader.read(token).keep()

    counts = [kept.count for kept in reader.cache.snapshots]
    assert counts == [*range(1, 7)][len([1] * (6 - room)) :]
    assert sum(kept.nbytes for kept in reader.cache.snapshots) <= room * (SNAPSHOT_BYTES + 64)
