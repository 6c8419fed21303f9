"""Buffers of MindSpore Lite: blocks on the NPU, and host memory that it reads where it lies.

Knows how the library's tensors misbehave; knows neither graphs nor what a tensor means. The
library is passed in, so that nothing native is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from q35chat.ascend.native_log import NativeLog
from q35chat.engine.session import (
    Array,
    HostBuffer,
    Lifetime,
    NativeBuffer,
    check_fit,
    check_slots,
)
from q35chat.errors import Remedy, RuntimeFailure

_TYPES = {
    "BOOL": np.bool_,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "INT32": np.int32,
    "INT64": np.int64,
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "FLOAT64": np.float64,
}
_MIB = 1 << 20


def numpy_type(dtype: Any, name: str) -> np.dtype[Any]:  # noqa: ANN401  (an enum of the library)
    """The dtype of the tensor `name`. Raises RuntimeFailure for one that numpy does not have."""
    kind = getattr(dtype, "name", None)  # None is what the library says of bfloat16
    if kind not in _TYPES:
        raise RuntimeFailure(
            f"{name} has type {kind or 'bfloat16'}, which this program cannot hold:",
            Remedy.EXPORT_FP16,
        )
    return np.dtype(_TYPES[kind])


def lite_type(library: Any, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401
    """The library's own name for `dtype`."""
    for name, kind in _TYPES.items():
        if np.dtype(kind) == dtype:
            return getattr(library.DataType, name)
    raise RuntimeFailure(f"MindSpore Lite has no tensors of {dtype}")


class LiteHostBuffer(HostBuffer):
    """Host memory, zeros at first; a tensor of the library looks at the same bytes."""

    __slots__ = ()

    def __init__(
        self,
        library: Any,  # noqa: ANN401
        shape: Sequence[int],
        dtype: np.dtype[Any],
        life: Lifetime,
    ) -> None:
        array: Array = np.zeros(tuple(int(axis) for axis in shape), dtype)
        super().__init__(library.Tensor(array), array, life)
        if self.native._tensor is None:
            raise RuntimeFailure(f"MindSpore Lite cannot hold a host tensor {dtype}{self.shape}")


class DeviceBuffer(NativeBuffer):
    """A block on the NPU, filled with zeros: what lies there after an allocation may be NaN, and
    a masked slot multiplies it by zero, which stays NaN."""

    __slots__ = ("_log",)

    def __init__(
        self,
        library: Any,  # noqa: ANN401
        shape: Sequence[int],
        dtype: np.dtype[Any],
        life: Lifetime,
        device: str,
        log: NativeLog,
    ) -> None:
        mark = log.mark()
        super().__init__(
            library.Tensor(
                shape=[int(axis) for axis in shape], dtype=lite_type(library, dtype), device=device
            ),
            shape,
            dtype,
            life,
        )
        self._log = log
        if self.native._tensor is None:  # a failed allocation raises nothing
            size = int(np.prod(self.shape)) * dtype.itemsize
            cause = log.cause(mark) or "the library says nothing more"
            raise DeviceMemoryError(
                f"{device} has no room for {size / _MIB:.1f} MiB ({dtype}{self.shape}): {cause}",
                Remedy.SWAP_OR_FREE,
            )
        try:
            self.write(np.zeros(self.shape, dtype))
        except RuntimeFailure:
            self.release()  # whoever keeps the error would keep the block
            raise

    def write(self, array: Array) -> None:
        """Copy `array` to the device. Raises ValueError for another shape or dtype,
        RuntimeFailure when the copy failed."""
        check_fit(array, self.shape, self.dtype)  # the library looks at neither shape nor order
        mark = self._log.mark()
        self.native.set_data_from_numpy(np.ascontiguousarray(array))
        if cause := self._log.cause(mark):  # a failed copy raises nothing
            raise RuntimeFailure(f"cannot copy to the NPU: {cause}; log: {self._log.path}")

    def write_slots(self, rows: Array) -> None:
        """Copy `rows` over the first slots. Raises ValueError where they do not fit."""
        check_slots(rows, self.shape, self.dtype)
        whole = self.host().copy()
        whole[..., : rows.shape[-2], :] = rows
        self.write(whole)

    def host(self) -> Array:
        """A copy on the host: a view that the next call overwrites."""
        data: Array = self.native.get_data_to_numpy()
        return data.reshape(self.shape)


class DeviceMemoryError(RuntimeFailure, MemoryError):
    """The device has no memory left."""


LiteBuffer = LiteHostBuffer | DeviceBuffer
