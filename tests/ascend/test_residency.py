from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from q35chat.ascend.residency import Mode, Residency, decided


@dataclass
class Room:
    """Space for `size` graphs."""

    size: int = 9
    loaded: int = 0


@dataclass
class Graph:
    room: Room
    is_loaded: bool = False
    history: list[str] = field(default_factory=list)

    def load(self) -> None:
        if self.room.loaded == self.room.size:
            raise MemoryError
        self.room.loaded += 1
        self.is_loaded = True
        self.history.append("load")

    def unload(self) -> None:
        if self.is_loaded:
            self.room.loaded -= 1
            self.history.append("unload")
        self.is_loaded = False


def two(mode: Mode, room: Room) -> tuple[Residency, Graph, Graph]:
    residency, graphs = Residency(mode), (Graph(room), Graph(room))
    for graph in graphs:
        residency.join(graph)
        residency.enter(graph)
    return residency, *graphs


def test_both_stay_where_there_is_room() -> None:
    residency, first, second = two("both", Room())

    residency.enter(first)
    assert (first.history, second.history) == (["load"], ["load"])


def test_swap_has_one_at_a_time() -> None:
    residency, first, second = two("swap", Room())

    assert (first.is_loaded, second.is_loaded) == (False, True)
    residency.enter(first)
    assert (first.is_loaded, second.is_loaded) == (True, False)


def test_auto_begins_to_swap_when_memory_runs_out() -> None:
    residency, first, second = two("auto", Room(1))

    assert residency.swaps
    assert (first.is_loaded, second.is_loaded) == (False, True)


def test_both_fails_when_memory_runs_out() -> None:
    with pytest.raises(MemoryError):
        two("both", Room(1))


def test_a_graph_too_large_alone_fails() -> None:
    with pytest.raises(MemoryError):
        two("auto", Room(0))


def test_room_is_made_only_where_there_is_something_to_unload() -> None:
    residency, first, second = two("auto", Room())

    assert residency.make_room(second)
    assert not first.is_loaded
    assert not residency.make_room(second)


@pytest.mark.parametrize(
    ("mode", "needed", "free", "decidedd"),
    [
        ("auto", 10, 20, "auto"),
        ("auto", 30, 20, "swap"),
        ("auto", 30, None, "auto"),
        ("both", 30, 20, "both"),
        ("swap", 10, 20, "swap"),
    ],
)
def test_measured_memory_decides_auto(
    mode: Mode, needed: int, free: int | None, decidedd: str
) -> None:
    assert decided(mode, needed, free) == decidedd
