"""Puts the MindSpore Lite stand-in where `import mindspore_lite` finds it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from q35chat.ascend.diagnosis import SELF_CONTAINED_LITE
from tests.doubles import mindspore_lite
from tests.doubles.mindspore_lite.npu import NPU, Npu


def release(version: str, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the stand-in be of that version. From 2.11 on a wheel has its own `package` of kernels,
    which its import puts before all others."""
    monkeypatch.setattr(mindspore_lite, "__version__", version)
    if tuple(map(int, version.split(".")[:2])) >= SELF_CONTAINED_LITE:
        monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(package), prepend=os.pathsep)


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Npu]:
    """The stand-in is installed; its simulated NPU, with counters at zero."""
    monkeypatch.setitem(sys.modules, "mindspore_lite", mindspore_lite)
    gc.collect()  # what earlier tests left on the device
    NPU.reset()
    yield NPU
    NPU.reset()
