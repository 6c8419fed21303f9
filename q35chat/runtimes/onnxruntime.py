"""ONNX Runtime on the CPU behind `GraphSession`.

Buffers are numpy arrays that ONNX Runtime works on in place; runs are I/O bindings made once.
Knows no tensor's meaning. Nothing of the native library's logs reaches the screen: a failure is
raised with its cause on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as native

from q35chat.engine.contract import shared_names
from q35chat.engine.session import Array, Buffer, TensorSpec
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
    *(
        kind
        for kind in vars(native).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
)


class OrtBuffer:
    """Host memory that ONNX Runtime reads and writes where it lies."""

    __slots__ = ("_array", "value")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._array = _aligned(shape, dtype)
        self.value = ort.OrtValue.ortvalue_from_numpy(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The concrete shape."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._array.dtype

    def write(self, array: Array) -> None:
        """Copy `array` in. Raises ValueError for another shape or dtype."""
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise ValueError(
                f"buffer is {self.dtype}{self.shape}, array is {array.dtype}{array.shape}"
            )
        np.copyto(self._array, array)

    def host(self) -> Array:
        """The memory itself."""
        return self._array


class OrtSession:
    """One ONNX file, loaded, with weights in external files beside it."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        if not path.is_file():
            raise RuntimeFailure(f"{path} is missing")
        with _translated(f"cannot load {path}", str(path)):
            session = ort.InferenceSession(
                str(path), _options(threads or usable_cpus()), providers=["CPUExecutionProvider"]
            )
        self._name = path.parent.name or path.name
        self._session: ort.InferenceSession | None = session
        self._inputs = tuple(_spec(node) for node in session.get_inputs())
        self._outputs = tuple(_spec(node) for node in session.get_outputs())
        self._metadata = dict(session.get_modelmeta().custom_metadata_map)
        self._may_share = frozenset().union(*shared_names(self._metadata))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Declared inputs, in graph order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Declared outputs, in graph order."""
        return self._outputs

    @property
    def metadata(self) -> Mapping[str, str]:
        """Key-value pairs stored in the graph by the exporter."""
        return self._metadata

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """A zero-filled buffer."""
        self._live()
        return OrtBuffer(shape, dtype)

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> OrtRun:
        """Bind every input and output by name. Raises ValueError where that is not what is given,
        or where one buffer is on both sides and the graph does not promise it."""
        self._check(inputs, outputs)
        with _translated(f"cannot bind the {self._name} graph"):
            binding = ort.IOBinding(self._live())
            for name, buffer in inputs.items():
                binding.bind_ortvalue_input(name, _ours(buffer).value)
            for name, buffer in outputs.items():
                binding.bind_ortvalue_output(name, _ours(buffer).value)
        return OrtRun(self, binding)

    def run(self, binding: ort.IOBinding, options: ort.RunOptions) -> None:
        """Run a binding of this session once."""
        with _translated(f"the {self._name} graph failed"):
            self._live().run_with_iobinding(binding, options)

    def close(self) -> None:
        """Free the graph; further calls raise RuntimeFailure."""
        self._session = None

    def _live(self) -> ort.InferenceSession:
        if self._session is None:
            raise RuntimeFailure(f"the {self._name} graph is closed: open the bundle again")
        return self._session

    def _check(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> None:
        for given, declared in ((inputs, self._inputs), (outputs, self._outputs)):
            if different := set(given) ^ {spec.name for spec in declared}:
                raise ValueError(f"not bound one to one: {', '.join(sorted(different))}")
        written = {id(buffer) for buffer in outputs.values()}
        for name, buffer in inputs.items():
            if id(buffer) in written and name not in self._may_share:
                raise ValueError(f"{name} would be read and written in one run")


class OrtRun:
    """A binding of every input and output, ready to run again and again."""

    __slots__ = ("_binding", "_options", "_session")

    def __init__(self, session: OrtSession, binding: ort.IOBinding) -> None:
        self._session = session
        self._binding = binding
        self._options = ort.RunOptions()
        self._options.log_severity_level = _FATAL

    def __call__(self) -> None:
        """Run once. Raises RuntimeFailure with ONNX Runtime's cause."""
        self._session.run(self._binding, self._options)


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
        cause = _NOISE.sub("", " ".join(str(error).split()))
        cause = cause.removeprefix(f"Load model from {path} failed:").strip()
        raise RuntimeFailure(f"{what}: {cause or type(error).__name__}") from error
