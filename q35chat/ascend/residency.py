"""Which graphs of a bundle are on the device at once: all of them, one at a time, or no decode.

Prefill and decode of a 4B model may not fit a chip together. A prefill that takes a single token
decodes, too. Knows that a graph can be loaded and
unloaded, and how long that took; nothing of what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

Made = TypeVar("Made")
Mode = Literal["auto", "both", "swap", "one"]


class Loadable(Protocol):
    """A graph that can leave the device and come back."""

    @property
    def is_loaded(self) -> bool:
        """Whether it is on the device."""

    def load(self) -> None:
        """Bring it to the device. Raises DeviceMemoryError where there is no room."""

    def unload(self) -> None:
        """Free what it holds there; buffers of states stay."""


class Residency:
    """The graphs of one bundle. `mode` "auto" keeps them all until memory runs out, and so does
    "one", which only says that there is no graph for decode among them."""

    def __init__(self, mode: Mode = "auto") -> None:
        self._mode = mode
        self._members: list[Loadable] = []

    @property
    def swaps(self) -> bool:
        """Whether one graph at a time is loaded."""
        return self._mode == "swap"

    def join(self, member: Loadable) -> None:
        """Count `member` among the graphs."""
        self._members.append(member)

    def leave(self, member: Loadable) -> None:
        """Forget `member`, which is closed."""
        self._members = [other for other in self._members if other is not member]

    def enter(self, member: Loadable) -> None:
        """Have `member` on the device; in swap mode, alone."""
        if member.is_loaded:
            return
        if self.swaps:
            self._unload_others(member)
        self.with_room(member, member.load)

    def with_room(self, keep: Loadable, work: Callable[[], Made]) -> Made:
        """What `work` gives. Where it has no memory and other graphs than `keep` can leave, they
        do, and it is tried once more."""
        try:
            return work()
        except MemoryError:
            if not self.make_room(keep):
                raise
        return work()

    def make_room(self, keep: Loadable) -> bool:
        """Unload every graph but `keep` and swap from now on; whether that freed anything."""
        if self._mode == "both" or not any(m.is_loaded for m in self._members if m is not keep):
            return False
        self._mode = "swap"
        self._unload_others(keep)
        return True

    def _unload_others(self, keep: Loadable) -> None:
        for other in self._members:
            if other is not keep:
                other.unload()


def decided(mode: Mode, needed: int, free: int | None, *, one: bool = False) -> Mode:
    """`auto` decided where it can be: `needed` bytes of graphs against `free` bytes of memory.
    `one` tells that a prefill can decode, which is better than taking turns."""
    if mode != "auto" or free is None or needed <= free:
        return mode
    return "one" if one else "swap"
