"""Tensors: host memory that is shared with numpy, or blocks on the simulated NPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.doubles.mindspore_lite import native_log
from tests.doubles.mindspore_lite.checks import check_device, check_ints, check_isinstance
from tests.doubles.mindspore_lite.npu import NPU, Memory
from tests.doubles.mindspore_lite.types import DataType, Format, lite_dtype, numpy_dtype

Array = npt.NDArray[Any]


class Native:
    """What the Python class wraps: one tensor of the library. `memory` None is on the host."""

    def __init__(self, shape: list[int], dtype: DataType, device: str = "None:-1") -> None:
        self.name = ""
        self.shape = shape
        self.dtype = dtype
        self.format = Format.ND
        self.device = device
        self.memory: Memory | None = None
        self.host: Array | None = None
        self.from_numpy = False

    @property
    def nbytes(self) -> int:
        count = int(np.prod(self.shape)) if all(axis > 0 for axis in self.shape) else 0
        return count * numpy_dtype(self.dtype).itemsize

    def read(self) -> Array:
        """The contents as the graph sees them; no bytes are counted."""
        if self.memory is not None:
            raw = self.memory.data[: self.nbytes].view(numpy_dtype(self.dtype))
            return raw.reshape(self.shape)
        if self.host is None:
            self.host = np.zeros(self.shape, numpy_dtype(self.dtype))
        return self.host.reshape(self.shape)

    def fill(self, array: Array) -> None:
        """Put `array` there without counting."""
        flat = np.ascontiguousarray(array)
        if self.memory is not None:
            self.memory.data[: flat.nbytes] = flat.reshape(-1).view(np.uint8)
        elif self.host is not None and self.host.nbytes == flat.nbytes:
            self.host.reshape(-1).view(np.uint8)[:] = flat.reshape(-1).view(np.uint8)
        else:
            self.host = flat.copy()


class TensorMeta:
    """Name, type and shape of an output, without data."""

    def __init__(self, name: str, dtype: DataType, shape: list[int]) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.format = Format.ND
        self.element_num = int(np.prod(shape)) if all(axis > 0 for axis in shape) else 0
        self.data_size = self.element_num * numpy_dtype(dtype).itemsize


class Tensor:
    """`Tensor(native | ndarray, shape=, dtype=, device=)`."""

    def __init__(
        self,
        tensor: Any = None,
        shape: Any = None,
        dtype: Any = None,
        device: Any = None,
    ) -> None:
        place = check_device(device) if device is not None else None
        self._tensor: Native | None
        if isinstance(tensor, Native):
            self._tensor = tensor
        elif isinstance(tensor, np.ndarray):
            self._tensor = _from_numpy(tensor, place)
        elif tensor is not None:
            raise TypeError(
                "tensor must be MindSpore Lite's Tensor._tensor or numpy ndarray, "
                f"but got {type(tensor)}."
            )
        elif shape is None or dtype is None:
            self._tensor = Native([], DataType.FLOAT32)
        else:
            check_ints("shape", shape)
            check_isinstance("dtype", dtype, DataType)
            self._tensor = _empty(list(shape), dtype, place)

    @property
    def _native(self) -> Native:
        native = self._tensor
        if native is None:  # as pybind has it: nothing is checked before it is used
            raise AttributeError("'NoneType' object has no attribute 'get_tensor_shape'")
        return native

    @property
    def name(self) -> str:
        return self._native.name

    @name.setter
    def name(self, name: str) -> None:
        check_isinstance("name", name, str)
        self._native.name = name

    @property
    def dtype(self) -> DataType:
        return self._native.dtype

    @property
    def shape(self) -> list[int]:
        return list(self._native.shape)

    @shape.setter
    def shape(self, shape: Any) -> None:
        check_ints("shape", shape)
        if self._native.from_numpy:
            native_log.warning("tensor_numpy_impl.h:56] SetShape]", "can not set shape")
            return
        self._native.shape = list(shape)
        self._native.host = None

    def _get_format(self) -> Format:
        return self._native.format

    def _set_format(self, value: Format) -> None:
        check_isinstance("format", value, Format)
        if self._native.from_numpy:
            native_log.error("tensor_numpy_impl.h:62] SetFormat]", "can not set format")
            return
        self._native.format = value

    format = property(_get_format, _set_format)

    @property
    def device(self) -> str:
        return self._native.device

    @property
    def element_num(self) -> int:
        return int(np.prod(self._native.shape))

    @property
    def data_size(self) -> int:
        return self._native.nbytes

    def set_data_from_numpy(self, array: Any) -> None:
        native = self._native
        if not isinstance(array, np.ndarray):
            raise TypeError(f"numpy_obj must be numpy.ndarray, but got {type(array)}.")
        if not array.flags.forc:
            array = np.ascontiguousarray(array)
        if lite_dtype(array.dtype) is not native.dtype:
            raise RuntimeError(
                f"data type not equal! Numpy type: {array.dtype.type}, Tensor type: {native.dtype}"
            )
        if array.nbytes != native.nbytes:
            raise RuntimeError(
                f"data size not equal! Numpy size: {array.nbytes}, Tensor size: {native.nbytes}"
            )
        if not array.flags.c_contiguous:
            native_log.error("tensor_pybind.cc:255] SetTensorNumpyData]", "data is not contiguous")
            return
        if native.memory is None:
            native.host = array
            return
        NPU.uploaded += array.nbytes
        if NPU.take("fail_uploads"):
            native_log.error("tensor_pybind.cc:268] SetTensorNumpyData]", "copy to device failed")
            return
        native.fill(array)

    def get_data_to_numpy(self) -> Array:
        native = self._native
        if any(axis <= 0 for axis in native.shape):
            native_log.error("tensor_pybind.cc:281] GetPyTensorShape]", "invalid shape")
            return np.array([], numpy_dtype(native.dtype))
        if native.memory is None:
            return native.read()
        NPU.downloaded += native.nbytes
        if native.host is None or native.host.nbytes != native.nbytes:
            native.host = np.empty(native.shape, numpy_dtype(native.dtype))
        native.host.reshape(-1).view(np.uint8)[:] = native.memory.data[: native.nbytes]
        return native.host.reshape(native.shape)


def _from_numpy(array: Array, device: str | None) -> Native | None:
    if not array.flags.forc:
        array = np.ascontiguousarray(array)
    if not array.flags.c_contiguous:
        native_log.error("tensor_pybind.cc:170] create_tensor]", "numpy array is not contiguous")
        return None
    native = _empty(list(array.shape), lite_dtype(array.dtype), device)
    if native is None:
        return None
    if device is None:
        native.host = array
    else:
        NPU.uploaded += array.nbytes
        native.fill(array)
    native.from_numpy = True
    return native


def _empty(shape: list[int], dtype: DataType, device: str | None) -> Native | None:
    native = Native(shape, dtype, device or "None:-1")
    if device is None:
        return native
    native.memory = NPU.allocate(max(native.nbytes, 1))
    if native.memory is None:
        native_log.error("types.cc:140] CreateTensor]", f"Malloc device data failed: {shape}")
        return None
    return native
