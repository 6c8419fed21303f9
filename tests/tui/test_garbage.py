"""When Python looks for garbage: not while the program starts, nor through all that is there."""

from __future__ import annotations

import gc
import weakref
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


class Knot:
    """Garbage that only a walk finds."""

    def __init__(self) -> None:
        self.itself = self


def spared_and_dropped() -> weakref.ref[Knot]:
    knot = Knot()
    garbage.spare_old()
    return weakref.ref(knot)


def test_what_answers_spared_goes_after_some_of_them() -> None:
    dropped = spared_and_dropped()
    for _ in range(16):
        garbage.spare_old()
        garbage.walk_all()
    assert dropped() is None


def test_what_a_chat_leaves_goes_with_it_unless_an_answer_is_drawn() -> None:
    dropped = spared_and_dropped()
    garbage.chat_left()
    assert dropped() is not None
    garbage.walk_all()
    garbage.chat_left()
    assert dropped() is None
