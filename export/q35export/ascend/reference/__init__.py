"""Runs exported 310P graphs without an NPU: standard nodes in ONNX Runtime, kernels in numpy.

Written from the operators' definitions, not from what the exporter writes: whatever a graph says
that the definitions do not, is refused.
"""

from __future__ import annotations

from q35export.ascend.reference.contracts import TensorInfo
from q35export.ascend.reference.executor import GraphExecutor

__all__ = ["GraphExecutor", "TensorInfo"]
