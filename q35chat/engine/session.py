"""What the engine asks of a runtime: buffers that stay on the device, and runs bound to them.

A runtime is one class behind `GraphSession`. It owns device memory and the native library and
must not know what the tensors mean. What a session made lives as long as it is open: a buffer of a
closed session, and a run over one, raise RuntimeFailure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from q35chat.errors import BundleError, RuntimeFailure
from q35chat.text import safe_line

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, shape and dtype of a graph input or output; a dynamic axis is `None`."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]


class Buffer(Protocol):
    """Memory of one tensor on the device; its shape and dtype never change."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The concrete shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""

    def write(self, array: Array) -> None:
        """Copy `array` (same shape and dtype) from the host to the device."""

    def write_slots(self, rows: Array) -> None:
        """Copy `rows`, fewer along the second-last axis, over the first slots of a cache."""

    def head_rows(self, head: int, shape: tuple[int, ...]) -> Buffer:
        """The first slots of one head of a cache `[1, NKV, C, HD]`, the same memory as a buffer
        `[*shape, HD]`."""

    def host(self) -> Array:
        """Return the contents on the host, of this shape and dtype: a view that the next run may
        overwrite, copy to keep."""


class BoundRun(Protocol):
    """A graph with all inputs and outputs bound to buffers, ready to run again and again."""

    def __call__(self) -> None:
        """Run once; outputs are written into their buffers. Releases the GIL while it runs."""


class GraphSession(Protocol):
    """One loaded graph."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Declared inputs, in graph order."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Declared outputs, in graph order."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Key-value pairs stored in the graph by the exporter."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """A zero-filled buffer on this session's device."""

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> BoundRun:
        """Bind every input and output by name. The same buffer may be on both sides only
        where the graph's metadata promises it (`q35chat.in_place`, `q35chat.may_alias`)."""

    def close(self) -> None:
        """Free the graph, and the memory of its buffers and runs, whoever still refers to them;
        further calls raise RuntimeFailure."""


def check_fit(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raises ValueError where `array` has another shape or dtype than its buffer."""
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"buffer is {dtype}{shape}, array is {array.dtype}{array.shape}")


def check_slots(rows: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raises ValueError where `rows` are no first slots of a cache of this shape and dtype."""
    slots = min(rows.shape[-2], shape[-2]) if rows.ndim > 1 < len(shape) else 0
    check_fit(rows, (*shape[:-2], slots, *shape[-1:]), dtype)


class UnboundError(BundleError, ValueError):
    """A graph declares other tensors than its contract does."""


def check_bound(
    session: GraphSession,
    inputs: Mapping[str, Buffer],
    outputs: Mapping[str, Buffer],
    may_share: frozenset[str] = frozenset(),
) -> None:
    """Raises UnboundError where not each input and output of the graph is given, ValueError where
    a buffer is on both sides and its input is none of `may_share`."""
    for given, declared in ((inputs, session.inputs), (outputs, session.outputs)):
        if different := set(given) ^ {spec.name for spec in declared}:
            named = ", ".join(map(safe_line, sorted(different)))
            raise UnboundError(
                f"the graph has other tensors than this program gives it, not bound one to one: "
                f"{named}; export the bundle again"
            )
    written = {id(buffer) for buffer in outputs.values()}
    for name, buffer in inputs.items():
        if id(buffer) in written and name not in may_share:
            raise ValueError(f"{name} would be read and written in one run")


class Releasable(Protocol):
    """What holds native memory."""

    def release(self) -> None:
        """Let the native memory go; whoever uses this afterwards gets a RuntimeFailure."""


class Lifetime:
    """That of the session of one graph, by the graph's `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_over = False
        self._runs: WeakSet[Releasable] = WeakSet()
        self._buffers: WeakSet[Releasable] = WeakSet()

    def check(self) -> None:
        """Raises RuntimeFailure after `end`."""
        if self._is_over:
            raise RuntimeFailure(f"the {self._name} graph is closed: open the bundle again")

    def ends_buffer(self, buffer: Releasable) -> None:
        """`buffer` ends with the session."""
        self._buffers.add(buffer)

    @staticmethod
    def of_run(run: Releasable, lives: Iterable[Lifetime]) -> tuple[Lifetime, ...]:
        """Those that `run` ends with, of its graph and of its buffers: each once."""
        each = tuple(dict.fromkeys(lives))
        for life in each:
            life._runs.add(run)
        return each

    def end(self) -> None:
        """Release all runs, then the buffers that they were bound to."""
        self._is_over = True
        for kept in (self._runs, self._buffers):
            for held in tuple(kept):
                held.release()
            kept.clear()


class NativeBuffer:
    """The memory of one tensor as the native library has it, as long as `life` lasts."""

    __slots__ = ("__weakref__", "_native", "dtype", "life", "shape")

    def __init__(
        self, native: object, shape: Iterable[int], dtype: np.dtype[Any], life: Lifetime
    ) -> None:
        self._native = native
        self.shape = tuple(int(axis) for axis in shape)
        self.dtype = dtype
        self.life = life
        life.ends_buffer(self)

    @property
    def native(self) -> Any:  # noqa: ANN401  (the library's own)
        """The library's own object. Raises RuntimeFailure after `release`."""
        self.life.check()
        return self._native

    def head_rows(self, head: int, shape: tuple[int, ...]) -> Buffer:
        """Raises TypeError where the library has no buffers within others."""
        raise TypeError(f"no buffer of {shape} rows of head {head} within another one")

    def release(self) -> None:
        """Let the memory go."""
        self._native = None


class HostBuffer(NativeBuffer):
    """Host memory that the library reads and writes where it lies."""

    __slots__ = ("_array",)

    def __init__(self, native: object, array: Array, life: Lifetime) -> None:
        self._array: Array | None = array
        super().__init__(native, array.shape, array.dtype, life)

    def write(self, array: Array) -> None:
        """Copy `array` in. Raises ValueError for another shape or dtype."""
        check_fit(array, self.shape, self.dtype)
        np.copyto(self.host(), array)

    def write_slots(self, rows: Array) -> None:
        """Copy `rows` over the first slots. Raises ValueError where they do not fit."""
        check_slots(rows, self.shape, self.dtype)
        self.host()[..., : rows.shape[-2], :] = rows

    def host(self) -> Array:
        """The memory itself. Raises RuntimeFailure after `release`."""
        self.life.check()
        assert self._array is not None
        return self._array

    def release(self) -> None:
        """Let the memory go."""
        super().release()
        self._array = None
