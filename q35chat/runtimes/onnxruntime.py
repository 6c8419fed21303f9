"""ONNX Runtime on the CPU behind `GraphSession`.

Buffers are numpy arrays that ONNX Runtime works on in place; runs are I/O bindings made once.
Knows no tensor's meaning. Nothing of the native library's logs reaches the screen: a failure is
raised with its cause on one line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import clear_frames
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as native

from q35chat.engine.contract import shared_names
from q35chat.engine.session import (
    Array,
    Buffer,
    HostBuffer,
    Lifetime,
    TensorSpec,
    check_bound,
)
from q35chat.errors import RuntimeFailure
from q35chat.runtimes.threads import usable_cpus

_ALIGNMENT = 64
_FATAL = 4
_NOISE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |\S+\.(?:cc|h):\d+ ")
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    UnicodeDecodeError,
    *(
        kind
        for kind in vars(native).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
)


class OrtBuffer(HostBuffer):
    """Host memory that ONNX Runtime works on: zeros at first, or a part of what is there."""

    __slots__ = ()

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        life: Lifetime,
        part: Array | None = None,
    ) -> None:
        array = _aligned(shape, dtype) if part is None else part
        super().__init__(ort.OrtValue.ortvalue_from_numpy(array), array, life)

    def head_rows(self, head: int, shape: tuple[int, ...]) -> OrtBuffer:
        """The first slots of one head of a cache, `[*shape, HD]`, the same memory."""
        part = self.host()[0, head, : math.prod(shape)].reshape(*shape, self.shape[-1])
        return OrtBuffer(part.shape, self.dtype, self.life, part)


class OrtSession:
    """One ONNX file, loaded, with weights in external files beside it. `inputs`, `outputs` and
    `metadata` are as it declares them."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        if not path.is_file():
            raise RuntimeFailure(f"{path} is missing")
        self._name = path.parent.name or path.name
        self._life = Lifetime(self._name)
        self._session: ort.InferenceSession | None = None
        with _translated(f"cannot load {path}", str(path)):
            self._session = ort.InferenceSession(
                str(path), _options(threads or usable_cpus()), providers=["CPUExecutionProvider"]
            )
        try:
            with _translated(f"cannot load {path}", str(path)):
                self._describe()
        except RuntimeFailure as error:
            clear_frames(error.__traceback__)
            self.close()
            raise

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """A zero-filled buffer."""
        self._life.check()
        return OrtBuffer(shape, dtype, self._life)

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> OrtRun:
        """Bind every input and output by name. Raises ValueError where that is not what is given,
        or where one buffer is on both sides and the graph does not promise it."""
        self._life.check()
        check_bound(self, inputs, outputs, self._may_share)
        reads = {name: _ours(buffer) for name, buffer in inputs.items()}
        writes = {name: _ours(buffer) for name, buffer in outputs.items()}
        with _translated(f"cannot bind the {self._name} graph"):
            binding = ort.IOBinding(self._session)
            for name, buffer in reads.items():
                binding.bind_ortvalue_input(name, buffer.native)
            for name, buffer in writes.items():
                binding.bind_ortvalue_output(name, buffer.native)
        return OrtRun(self, self._life, binding, (*reads.values(), *writes.values()))

    def run(self, run: OrtRun) -> None:
        """Run a binding of this session once."""
        for life in run.lives:
            life.check()
        assert self._session is not None
        with _translated(f"the {self._name} graph failed"):
            self._session.run_with_iobinding(run.binding, run.options)

    def close(self) -> None:
        """Free the graph, and the memory of all its buffers and runs; further calls raise
        RuntimeFailure."""
        self._session = None
        self._life.end()

    def _describe(self) -> None:
        """Read inputs, outputs and metadata from the loaded graph."""
        assert self._session is not None
        self.inputs = tuple(map(_spec, self._session.get_inputs()))
        self.outputs = tuple(map(_spec, self._session.get_outputs()))
        self.metadata: Mapping[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self._may_share = frozenset().union(*shared_names(self.metadata))


class OrtRun:
    """A binding of every input and output, ready to run again and again.

    It ends with the session of its graph, and with that of any buffer: `lives`.
    """

    __slots__ = ("__weakref__", "_buffers", "_session", "binding", "lives", "options")

    def __init__(
        self,
        session: OrtSession,
        life: Lifetime,
        binding: ort.IOBinding,
        buffers: tuple[OrtBuffer, ...],
    ) -> None:
        self._session = session
        self._buffers = buffers  # the binding has nothing but their addresses
        self.binding: ort.IOBinding | None = binding
        self.options = ort.RunOptions()
        self.options.log_severity_level = _FATAL
        self.lives = Lifetime.of_run(self, (life, *(buffer.life for buffer in buffers)))

    def __call__(self) -> None:
        """Run once. Raises RuntimeFailure with ONNX Runtime's cause."""
        self._session.run(self)

    def release(self) -> None:
        """Let the binding go, which holds the graph."""
        self.binding = None
        self._buffers = ()


def _options(threads: int) -> ort.SessionOptions:
    ort.set_default_logger_severity(_FATAL)
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it plans for one shape, chunks have many
    options.add_session_config_entry("session.force_spinning_stop", "1")  # idle means idle
    return options


def _spec(node: Any) -> TensorSpec:  # noqa: ANN401  (onnxruntime is untyped)
    if node.type not in _DTYPES:
        raise RuntimeFailure(f"{node.name} has type {node.type}, which this program cannot hold")
    shape = tuple(axis if isinstance(axis, int) and axis >= 0 else None for axis in node.shape)
    return TensorSpec(node.name, shape, np.dtype(_DTYPES[node.type]))


def _ours(buffer: Buffer) -> OrtBuffer:
    if not isinstance(buffer, OrtBuffer):
        raise TypeError(f"a buffer of ONNX Runtime is needed, got {type(buffer).__name__}")
    return buffer


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros that start on a cache line, so that vector kernels take their fast path."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


@contextmanager
def _translated(what: str, path: str = "") -> Iterator[None]:
    """Failures as one line that begins with `what`; `path` is not named a second time."""
    try:
        yield
    except _ERRORS as error:
        clear_frames(error.__traceback__)  # whoever keeps the error would keep the graph
        said = str(error)
        if isinstance(error, UnicodeDecodeError):  # the library's own words are no UTF-8
            said = error.object.decode("utf-8", "replace")
        cause = _NOISE.sub("", " ".join(said.split()))
        cause = cause.removeprefix(f"Load model from {path} failed:").strip()
        raise RuntimeFailure(f"{what}: {cause or type(error).__name__}") from error
