"""What the setup screen asks of whoever can export a model; the composing side brings one.

Plain values and a protocol. Knows no widget, no checkpoint and no graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from q35chat.errors import Q35Error, UsageError

Hub = Literal["huggingface", "modelscope"]
ROOM: Final = 1.05
"""What a bundle needs on a disk for each of its bytes."""


class Stopped(Q35Error):  # noqa: N818 - what happened, not what went wrong
    """What was asked for was stopped before its end; nothing of it is left but what a calibration
    goes on with."""


class Occupied(UsageError):  # noqa: N818 - a state that has a way on
    """Another bundle stands in the folder; `BundleWish.replace` would replace it."""


@dataclass(frozen=True, slots=True)
class BundleWish:
    """A model (folder or hub id) and what its bundle should be; `capacity` in KV slots."""

    model: str
    hub: Hub
    precision: str
    capacity: int
    folder: Path
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What one precision takes, in bytes: on disk, in memory, and in memory for each slot.

    `parts` are the sizes of what is written, in order.
    """

    precision: str
    disk: int
    memory: int
    slot: int
    parts: tuple[tuple[str, int], ...] = ()

    def memory_with(self, capacity: int) -> int:
        """Bytes of memory for a chat of `capacity` slots."""
        return self.memory + capacity * self.slot


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model would take; `longest` is its largest capacity, `memory_free` in bytes now."""

    costs: tuple[Cost, ...]
    longest: int
    memory_free: int

    def of(self, precision: str) -> Cost | None:
        """The cost of a precision; None where it is not on offer."""
        return next((cost for cost in self.costs if cost.precision == precision), None)


@dataclass(frozen=True, slots=True)
class Phase:
    """How far a part of the work is, in bytes; `total` 0 while nobody knows."""

    name: str
    done: int
    total: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class MadeBundle:
    """A complete bundle: its model, folder and size in bytes (0: it was there before).

    `command` opens it, or, when it is not `ready`, makes it ready for its device.
    """

    model: str
    folder: Path
    size: int
    command: str
    ready: bool = True


@dataclass(frozen=True, slots=True)
class FoundBundle:
    """The bundle that is in a folder: its model's name, what a `BundleWish` names, and in words
    what rounding kept of it."""

    model: str
    precision: str
    capacity: int
    kept: str = ""

    def unlike(self, wish: BundleWish) -> str:
        """What it is that `wish` does not want, to be said after the folder; empty for nothing."""
        if self.model not in {wish.model, Path(wish.model).name}:
            return f"holds a bundle of {self.model}"
        if self.precision != wish.precision:
            return f"holds an {self.precision} bundle, not {wish.precision}"
        if self.capacity != wish.capacity:
            return f"holds a bundle of {self.capacity:,} slots, not {wish.capacity:,}"
        return ""


TellPhase = Callable[[Phase], None]


class ExportJob(Protocol):
    """One estimate or one export. Both wait and belong in a worker thread."""

    def estimate(self, wish: BundleWish) -> Estimate:
        """What the model would take. Raises Q35Error, Stopped after `cancel`."""

    def export(self, wish: BundleWish, tell: TellPhase) -> MadeBundle:
        """Make the bundle; `tell` is called in this thread. Raises Q35Error, Stopped after
        `cancel`, Occupied; whatever is raised, the folder is then what it was before."""

    def cancel(self) -> None:
        """Stop it, also before it starts; returns at once, from any thread."""


class Exporter(Protocol):
    """Whoever can export a model."""

    def job(self) -> ExportJob:
        """Something to do once."""

    def room(self, folder: Path) -> int:
        """Free bytes where `folder` is or would be; 0 when nobody can tell."""

    def standing(self, folder: Path) -> FoundBundle | None:
        """The bundle in `folder`; None where there is none that can be read."""

    def bundle(self, name: str) -> MadeBundle | None:
        """The bundle that is in a folder, or has a name; None where there is none."""
