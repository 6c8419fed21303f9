"""A session that remembers the KV caches bound to it, which the engine keeps to itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from q35chat.engine.contract import shared_names
from q35chat.engine.session import BoundRun, Buffer, GraphSession, TensorSpec


class WatchedSession:
    """Passes every call on. `caches` are the buffers that the graph works on in place by promise,
    by input name: those of states that it may only overwrite are in a snapshot."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session
        self.caches: dict[str, Buffer] = {}

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Declared inputs, in graph order."""
        return self._session.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Declared outputs, in graph order."""
        return self._session.outputs

    @property
    def metadata(self) -> Mapping[str, str]:
        """Key-value pairs stored in the graph by the exporter."""
        return self._session.metadata

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Buffer:
        """A zero-filled buffer on this session's device."""
        return self._session.allocate(shape, dtype)

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> BoundRun:
        """Bind, and note the caches."""
        in_place, _ = shared_names(self.metadata)
        self.caches |= {name: item for name, item in inputs.items() if name in in_place}
        return self._session.bind(inputs, outputs)

    def close(self) -> None:
        """Free the graph and its device memory; further calls are errors."""
        self._session.close()
