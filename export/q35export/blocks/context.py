"""What every block needs: the graph's target, the weights and the precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from q35export.graph import Graph
from q35export.matrix import Matrix, TensorSource, matrix
from q35export.precision import PrecisionPlan
from q35export.targets.base import Target

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Context:
    """Passed from block to block while one graph is built.

    Who asks for a tensor says its name and shape: there is no other list of them.
    """

    graph: Graph
    target: Target
    source: TensorSource
    plan: PrecisionPlan

    def vector(self, name: str, *shape: int) -> Float32:
        """Read a small tensor whole, FP32 of this `shape`."""
        self.source.expect(name, shape)
        return np.ascontiguousarray(self.source.read(name), dtype=np.float32)

    def matrix(self, name: str, *shape: int) -> Matrix:
        """A projection's weights, unread."""
        return matrix(self.source, name, shape)

    def zero_centred(self, name: str, width: int) -> Float32:
        """Read `1 + w`, `[width]` FP32: the decoder stores its RMS norm weights around zero."""
        return self.vector(name, width) + np.float32(1)
