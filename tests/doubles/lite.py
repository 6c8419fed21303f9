"""Puts the MindSpore Lite stand-in where `import mindspore_lite` finds it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from tests.doubles import mindspore_lite
from tests.doubles.mindspore_lite.npu import NPU, Npu


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Npu]:
    """The stand-in is installed; its simulated NPU, with counters at zero."""
    monkeypatch.setitem(sys.modules, "mindspore_lite", mindspore_lite)
    gc.collect()  # what earlier tests left on the device
    NPU.reset()
    yield NPU
    NPU.reset()
