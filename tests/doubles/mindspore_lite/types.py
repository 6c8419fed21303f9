"""Element types, formats and model types, with the numbers of the real library."""

from __future__ import annotations

from enum import Enum

import numpy as np


class DataType(Enum):
    UNKNOWN = 0
    BOOL = 30
    INT8 = 32
    INT16 = 33
    INT32 = 34
    INT64 = 35
    UINT8 = 37
    UINT16 = 38
    UINT32 = 39
    UINT64 = 40
    FLOAT16 = 42
    FLOAT32 = 43
    FLOAT64 = 44
    INVALID = 2147483647

    def __str__(self) -> str:
        return f"DataType.{self.name}"


class Format(Enum):
    DEFAULT = -1
    NCHW = 0
    NHWC = 1
    ND = 38


class ModelType(Enum):
    MINDIR = 0
    MINDIR_LITE = 4


class FmkType(Enum):
    TF = 0
    CAFFE = 1
    ONNX = 2


NUMPY_TYPES: dict[DataType, type[np.generic]] = {
    DataType.BOOL: np.bool_,
    DataType.INT8: np.int8,
    DataType.INT16: np.int16,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.UINT8: np.uint8,
    DataType.UINT16: np.uint16,
    DataType.UINT32: np.uint32,
    DataType.UINT64: np.uint64,
    DataType.FLOAT16: np.float16,
    DataType.FLOAT32: np.float32,
    DataType.FLOAT64: np.float64,
}
_BY_NUMPY = {np.dtype(kind): dtype for dtype, kind in NUMPY_TYPES.items()}


def numpy_dtype(dtype: DataType) -> np.dtype[np.generic]:
    return np.dtype(NUMPY_TYPES[dtype])


def lite_dtype(dtype: np.dtype[np.generic]) -> DataType:
    return _BY_NUMPY.get(np.dtype(dtype), DataType.UNKNOWN)
