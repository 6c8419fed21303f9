"""When Python looks for garbage: not while the program starts, nor through all that is there."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from q35chat.tui import garbage


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_nothing_is_walked_while_the_program_starts() -> None:
    garbage.pause()
    assert not gc.isenabled()
    made: list[list[int]] = [[] for _ in range(1_000)]
    garbage.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_what_was_there_at_the_start_is_walked_after_the_first_answer() -> None:
    garbage.pause()
    garbage.resume()
    garbage.spare_old()
    garbage.walk_all()
    assert gc.get_freeze_count() == 0


def test_a_second_end_of_the_start_changes_nothing() -> None:
    garbage.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
