"""A strict stand-in for MindSpore Lite 2.9 and newer: the same calls, errors and bad manners.

It runs graphs on a simulated NPU (`npu.NPU`) that counts allocations and the bytes that cross,
has a memory limit and fails on request. Put it in place with `tests.doubles.lite.installed`.
Model files are those of `modelfile.write_model`; nothing here knows what a graph computes.
"""

from __future__ import annotations

from importlib import import_module

from tests.doubles.mindspore_lite.context import Context
from tests.doubles.mindspore_lite.model import Model
from tests.doubles.mindspore_lite.tensor import Tensor, TensorMeta
from tests.doubles.mindspore_lite.types import DataType, FmkType, Format, ModelType

__version__ = "2.9.0"
__all__ = [
    "Context",
    "DataType",
    "FmkType",
    "Format",
    "Model",
    "ModelType",
    "Tensor",
    "TensorMeta",
]


def __getattr__(name: str) -> object:
    if name == "Converter":  # imports the exporter
        return import_module("tests.doubles.mindspore_lite.converter").Converter
    raise AttributeError(name)
