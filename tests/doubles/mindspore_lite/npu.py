"""The simulated NPU: memory with a limit, counters, and failures on request."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Memory:
    """A block of device memory. It is freed when nothing holds it any more."""

    def __init__(self, npu: Npu, data: Bytes) -> None:
        self.data = data
        npu.used += data.nbytes
        weakref.finalize(self, npu.free, data.nbytes)


@dataclass
class Npu:
    """What a machine has (`cann`), and what happened on it since `reset`.

    `limit` is its memory in bytes, of which a predict takes `workspace` while it runs. `dangling`
    counts output tensors that went while a model still pointed at them. `fail_uploads`,
    `fail_predicts` and `fail_allocations` are countdowns of calls that go wrong, in the way that
    the real library does. `given_outputs` says what becomes of outputs that a caller allocated:
    some builds "refuse" them for good and leave a dirty model, some "ignore" them.
    """

    cann: bool = True
    limit: int = 1 << 40
    workspace: int = 0
    used: int = 0
    allocations: int = 0
    uploaded: int = 0
    downloaded: int = 0
    builds: int = 0
    resizes: int = 0
    predicts: int = 0
    aliased: int = 0
    dangling: int = 0
    fail_uploads: int = 0
    fail_predicts: int = 0
    fail_allocations: int = 0
    given_outputs: Literal["take", "refuse", "ignore"] = "take"
    ran: list[str] = field(default_factory=list)

    def reset(self) -> None:
        """The counters and failures of a new test; memory in use stays in use."""
        fresh = Npu(used=self.used)
        self.__dict__.update(fresh.__dict__)

    def allocate(self, size: int) -> Memory | None:
        """A block of `size` bytes of what was there before, or None, as the real one."""
        if self.fail_allocations:
            self.fail_allocations -= 1
            return None
        if self.used + size > self.limit:
            return None
        self.allocations += 1
        return Memory(self, np.full(size, 0xA5, np.uint8))

    def free(self, size: int) -> None:
        """Called by the garbage collector."""
        self.used -= size

    def take(self, name: str) -> bool:
        """Count one call of the kind down; whether it has to fail."""
        left: int = getattr(self, name)
        if left:
            setattr(self, name, left - 1)
        return bool(left)


NPU = Npu()
