"""MindSpore Lite behind `GraphSession`, on an Ascend NPU.

States, inputs and logits live in device buffers, into which the library writes outputs in place.
Some builds refuse that, and some say nothing and do not; so the first run of a graph is watched,
and where it goes wrong results are copied out of the library's own from then on. With
`host_state_roundtrip` all buffers are host arrays, and that is the only way. Knows no tensor's
meaning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import perf_counter
from traceback import clear_frames
from typing import Any

import numpy as np

from q35chat.ascend.native_log import NativeLog
from q35chat.ascend.options import NpuOptions
from q35chat.ascend.ports import AxisSizes, describe, ports, read_gears, write_gears
from q35chat.ascend.residency import Residency
from q35chat.ascend.tensors import (
    DeviceBuffer,
    DeviceMemoryError,
    LiteBuffer,
    LiteHostBuffer,
    numpy_type,
)
from q35chat.engine.session import Buffer, Lifetime, TensorSpec, check_bound
from q35chat.errors import Remedy, RuntimeFailure
from q35chat.processes import program

_NEEDED = ("get_outputs", "get_model_info", "resize", "predict")
_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError)
_ADVICE: tuple[tuple[str, str | Remedy], ...] = (
    (
        r"libascend_kernel_plugin|libgraph\.so|libascendcl|Failed to register Ascend",
        "CANN was not found: source its set_env.sh before q35chat starts",
    ),
    (
        r"GetTensorDataFromExternal|_variables",
        "the *_variables folder must lie beside its *_graph.mindir under the name it was made with",
    ),
    (
        r"[Mm]alloc|[Oo]ut of memory|[Aa]lloc\w* .*(fail|mem)|EL0004|207001",
        Remedy.DEVICE_IS_FULL,
    ),
    (
        r"aclmdlSetInputDynamicDims|Not support dynamic input|dynamic dims",
        "the shape is none of the gears that the graph was converted with",
    ),
    (
        r"not found in graph",
        "a graph input is used by no node: export the bundle again",
    ),
    (
        r"(opp|vendor|[Oo]p ?type|kernel).*(not (found|exist|support)|[Ff]ail)|E[ZE]3003|E19010",
        (
            "an operator has no kernel: set ASCEND_CUSTOM_OPP_PATH to the vendor package of the "
            "delta rules before q35chat starts"
        ),
    ),
)


def load_library() -> Any:  # noqa: ANN401  (untyped)
    """The package, checked for the calls that are needed. Raises RuntimeFailure."""
    try:
        library = import_module("mindspore_lite")
    except ImportError as error:
        raise RuntimeFailure(
            "MindSpore Lite is not installed for this Python: install the wheel of 2.9 or newer "
            f"that belongs to your CANN ({error})"
        ) from error
    if missing := missing_calls(library):
        raise RuntimeFailure(
            f"mindspore_lite {library_version(library)} has no {', '.join(missing)}: "
            "install 2.9 or newer"
        )
    return library


def missing_calls(library: Any) -> tuple[str, ...]:  # noqa: ANN401
    """What this program calls and the package lacks; 2.0 lacks much of it."""
    model = getattr(library, "Model", object)
    missing = [f"Model.{name}" for name in _NEEDED if not hasattr(model, name)]
    missing += [name for name in ("Tensor", "Context", "DataType") if not hasattr(library, name)]
    return tuple(missing)


def library_version(library: Any) -> str:  # noqa: ANN401
    """The version of the package, as far as it tells."""
    return str(getattr(library, "__version__", "of unknown version"))


class LiteSession:
    """One converted graph. `kind` is "prefill", "decode" or "vision".

    `inputs` and `outputs` are in its order, with an empty shape where the file does not tell.
    `gears` are used where the file does not tell its own, `metadata` is what its maker says of it;
    `residency` says when it is loaded.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        options: NpuOptions,
        log: NativeLog,
        *,
        residency: Residency | None = None,
        gears: Sequence[AxisSizes] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        if not path.is_file():
            raise RuntimeFailure(f"{path} is missing: run `{program()} convert` on its bundle")
        self._path = path
        self._kind = kind
        self._options = options
        self._log = log
        log.install()
        self._library = load_library()
        self._residency = residency or Residency()
        self._residency.join(self)
        self._life = Lifetime(kind)
        self._model: Any = None
        self._poisoned = False
        self._shapes: list[list[int]] | None = None
        self._last: LiteRun | None = None
        self._takes_outputs: bool | None = None  # nobody knows before the first run
        self.load_ms = 0.0
        self.metadata = {"q35chat.contract": "1", "q35chat.graph": kind} | dict(metadata or {})
        try:
            self._residency.enter(self)
            self._describe(gears)
        except RuntimeFailure as error:
            clear_frames(error.__traceback__)
            self.close()
            raise

    @property
    def is_loaded(self) -> bool:
        """Whether the graph is on the device."""
        return self._model is not None

    def make_ready(self) -> None:
        """Load the graph where it is not, or where it failed. Raises RuntimeFailure."""
        self._life.check()
        if self._poisoned:
            self.unload()  # two of them may not fit
        self._residency.enter(self)

    @property
    def reload_ms(self) -> float:
        """What bringing the graph back takes; 0 where it never has to leave."""
        return self.load_ms if self._residency.swaps else 0.0

    @property
    def refuses_outputs(self) -> bool:
        """Whether results go through the host, since this build does not write where it is told."""
        return self._takes_outputs is False

    def load(self) -> None:
        """Bring the graph to the device. Raises RuntimeFailure."""
        started = perf_counter()
        with self._translated(f"cannot load {self._path}"):
            self._model = self._built()
        self._poisoned = False
        self.load_ms = (perf_counter() - started) * 1e3

    def unload(self) -> None:
        """Free the graph's own memory; buffers stay."""
        self._model = None
        self._last = None
        self._shapes = None
        self._poisoned = False

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """A zero-filled buffer on this session's device. Raises RuntimeFailure where it does not
        fit."""
        self._life.check()
        if self._options.host_state_roundtrip:
            return LiteHostBuffer(self._library, shape, dtype, self._life)
        device = f"ascend:{self._options.device_id}"
        return self._residency.with_room(
            self,
            lambda: DeviceBuffer(self._library, shape, dtype, self._life, device, self._log),
        )

    def bind(self, inputs: Mapping[str, Buffer], outputs: Mapping[str, Buffer]) -> LiteRun:
        """Bind every input and output by name. Raises ValueError where that is not what is given,
        or where one buffer is on both sides."""
        self._life.check()
        check_bound(self, inputs, outputs)
        reads = [_ours(inputs[spec.name]) for spec in self.inputs]
        writes = [_ours(outputs[spec.name]) for spec in self.outputs]
        for spec, buffer in zip(self.inputs, reads, strict=True):
            if buffer.dtype != spec.dtype:
                raise ValueError(f"{spec.name} is {spec.dtype}, its buffer {buffer.dtype}")
        for buffer, described in zip(writes, self._outputs_meta, strict=True):
            if isinstance(buffer, DeviceBuffer):
                buffer.native.name = described.name
                buffer.native.format = described.format
        return LiteRun(self, self._life, reads, writes)

    def run(self, run: LiteRun) -> None:
        """Run a binding of this session once, on whatever thread; the GIL is free meanwhile.

        A run that the device has no memory for is tried again where another graph can leave.
        """
        for life in run.lives:
            life.check()

        def work() -> None:
            self.make_ready()
            with self._translated(f"the {self._kind} graph failed"):
                self._resize([list(buffer.shape) for buffer in run.reads])
                self._predict(run)

        self._residency.with_room(self, work)

    def forget(self, run: LiteRun) -> None:
        """`run` is about to lose its buffers, which after its run are the graph's own outputs."""
        if self._last is run:
            self.unload()

    def close(self) -> None:
        """Free the graph, and the memory of all its buffers and runs; further calls raise
        RuntimeFailure."""
        self.unload()
        self._life.end()
        self._residency.leave(self)

    def _describe(self, gears: Sequence[AxisSizes]) -> None:
        """Read inputs, outputs and gears from the loaded graph."""
        with self._translated(f"cannot read {self._path}"):
            inputs, outputs = self._model.get_inputs(), self._model.get_outputs()
            template = self._model.get_model_info("input_shape")
            dims = self._model.get_model_info("dynamic_dims")
        names, out = ports(self._kind, [x.name for x in inputs], [x.name for x in outputs])
        self._outputs_meta = tuple(outputs)
        self.inputs = tuple(map(_spec, names, inputs))
        self.outputs = tuple(map(_spec, out, outputs))
        renamed = {tensor.name: name for tensor, name in zip(inputs, names, strict=True)}
        told = read_gears(template, dims, renamed)
        self._gears = told or tuple(gears)
        free = any(axis is None for spec in self.inputs for axis in spec.shape)
        self._dynamic = free or bool(told)
        if self._gears:
            self.metadata["q35chat.gear_shapes"] = write_gears(self._gears)

    def _resize(self, shapes: list[list[int]]) -> None:
        """Tell the graph its shapes, only when they change and only where they are a gear; a graph
        of fixed shapes is told nothing."""
        if shapes == self._shapes:
            return
        sizes = {
            (spec.name, axis): size
            for spec, shape in zip(self.inputs, shapes, strict=True)
            for axis, size in enumerate(shape)
        }
        fits = (all(sizes.get(at) == size for at, size in gear.items()) for gear in self._gears)
        if self._gears and not any(fits):
            wrong = dict.fromkeys(str(sizes[at]) for at in self._gears[0] if at in sizes)
            raise GearError(
                f"the {self._kind} graph has no gear for {' x '.join(wrong)}; "
                f"it has {describe(self._gears)}:",
                Remedy.MORE_GEARS,
            )
        if self._dynamic:
            self._model.resize(self._model.get_inputs(), shapes)
        self._shapes = shapes

    def _predict(self, run: LiteRun) -> None:
        if self._options.host_state_roundtrip or self.refuses_outputs:
            self._predict_to_host(run)
        elif self._takes_outputs:
            self._predict_in_place(run)
        else:
            self._predict_first(run)

    def _predict_in_place(self, run: LiteRun) -> None:
        tensors = [buffer.native for buffer in run.reads]
        self._model.predict(tensors, [buffer.native for buffer in run.writes])
        self._last = run  # the library's own outputs now are these buffers: keep them alive

    def _predict_to_host(self, run: LiteRun) -> None:
        results = self._model.predict([buffer.native for buffer in run.reads])
        for spec, buffer, result in zip(self.outputs, run.writes, results, strict=True):
            data = result.get_data_to_numpy()
            if data.size != int(np.prod(buffer.shape)):
                raise RuntimeError(f"{spec.name} came out as {data.shape}, not {buffer.shape}")
            buffer.write(np.asarray(data, buffer.dtype).reshape(buffer.shape))

    def _predict_first(self, run: LiteRun) -> None:
        """Find out whether outputs are written in place. A run reads nothing of what it writes, so
        it can be repeated the other way; one that fails leaves a model that has to be built again.
        """
        witness = min(run.writes, key=lambda buffer: math.prod(buffer.shape))
        unwritten = np.full(witness.shape, np.nan, witness.dtype)
        witness.write(unwritten)
        mark = self._log.mark()
        try:
            self._predict_in_place(run)
            taken = not np.array_equal(witness.host(), unwritten, equal_nan=True)
        except _ERRORS as error:
            if is_full(self._log.cause(mark) or str(error)):
                raise
            clear_frames(error.__traceback__)
            taken = False
        if not taken:
            shapes = self._shapes or []
            self.unload()  # two of them may not fit
            self.load()
            self._resize(shapes)
            self._predict_to_host(run)
        self._takes_outputs = taken

    def _built(self) -> Any:  # noqa: ANN401
        context = self._library.Context()
        context.target = ["ascend"]
        context.ascend.device_id = self._options.device_id
        context.ascend.provider = ""  # the default one, which writes outputs in place
        model = self._library.Model()
        model.build_from_file(str(self._path), self._library.ModelType.MINDIR, context)
        return model

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """One line with the native log's cause instead of the library's generic error."""
        mark = self._log.mark()
        try:
            yield
        except RuntimeFailure:
            raise
        except _ERRORS as error:
            self._poisoned = True
            clear_frames(error.__traceback__)  # they would keep the failed model on the device
            cause = self._log.cause(mark) or " ".join(str(error).split())
            hint = advice(cause)
            kind = DeviceMemoryError if is_full(cause) else RuntimeFailure
            tail = f"; {hint}" if hint else ""
            raise kind(f"{what}: {cause}{tail}; log: {self._log.path}") from error


class GearError(RuntimeFailure, ValueError):
    """A shape that the graph was not converted for."""


class LiteRun:
    """A binding of every input and output, by position, ready to run again and again.

    It ends with the session of its graph, and with that of any buffer: `lives`.
    """

    __slots__ = ("__weakref__", "_session", "lives", "reads", "writes")

    def __init__(
        self,
        session: LiteSession,
        life: Lifetime,
        reads: list[LiteBuffer],
        writes: list[LiteBuffer],
    ) -> None:
        self._session = session
        self.reads = reads
        self.writes = writes
        self.lives = Lifetime.of_run(self, (life, *(buffer.life for buffer in (*reads, *writes))))

    def __call__(self) -> None:
        """Run once. Raises RuntimeFailure with the native log's cause."""
        self._session.run(self)

    def release(self) -> None:
        """Let the buffers go, first of all from the graph."""
        self._session.forget(self)
        self.reads, self.writes = [], []


def _spec(name: str, tensor: Any) -> TensorSpec:  # noqa: ANN401
    shape = tuple(int(axis) if axis > 0 else None for axis in tensor.shape)
    if shape == (None,):
        shape = ()  # the rank is lost until the graph has run
    return TensorSpec(name, shape, numpy_type(tensor.dtype, name))


def _ours(buffer: Buffer) -> LiteBuffer:
    if not isinstance(buffer, (LiteHostBuffer, DeviceBuffer)):
        raise TypeError(f"a buffer of MindSpore Lite is needed, got {type(buffer).__name__}")
    return buffer


def advice(cause: str) -> str:
    """What to do about `cause`; empty when it is not known."""
    text = _remedy(cause)
    return text.words() if isinstance(text, Remedy) else text


def is_full(cause: str) -> bool:
    """Whether the device had no memory left."""
    return _remedy(cause) is Remedy.DEVICE_IS_FULL


def _remedy(cause: str) -> str | Remedy:
    return next((text for pattern, text in _ADVICE if re.search(pattern, cause)), "")
