"""Names, dtypes and shapes at a graph's boundary, and whether arrays fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from q35chat.errors import ExportError

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A graph input or output; a text in `shape` names an open axis."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]


def tensor_infos(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorInfo, ...]:
    """The boundary that a graph declares."""
    return tuple(
        TensorInfo(
            value.name,
            np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim),
        )
        for value in values
    )


def check_arrays(infos: Sequence[TensorInfo], arrays: Mapping[str, Array]) -> None:
    """Raise ExportError unless `arrays` are exactly those tensors.

    An axis of one name has one length everywhere.
    """
    wanted = {info.name for info in infos}
    if wanted != arrays.keys():
        odd = ", ".join(sorted(wanted ^ arrays.keys()))
        raise ExportError(f"these tensors are missing or not the graph's: {odd}")
    lengths: dict[str, int] = {}
    for info in infos:
        array = arrays[info.name]
        fits = array.dtype == info.dtype and array.ndim == len(info.shape)
        for axis, length in zip(info.shape, array.shape, strict=False):
            known = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
            fits = fits and known == length
        if not fits:
            shown = ", ".join(map(str, info.shape))
            raise ExportError(
                f"{info.name} must be {info.dtype} [{shown}], found {array.dtype} "
                f"{list(array.shape)}"
            )
