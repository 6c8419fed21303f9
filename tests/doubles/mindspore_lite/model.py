"""Models: build, resize and predict as the real class does on an NPU and on a CPU."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tests.doubles.mindspore_lite import native_log
from tests.doubles.mindspore_lite.checks import check_ints, check_isinstance
from tests.doubles.mindspore_lite.context import Context
from tests.doubles.mindspore_lite.gears import Gears
from tests.doubles.mindspore_lite.modelfile import ModelFile, Port, read_model, variables_of
from tests.doubles.mindspore_lite.npu import NPU, Memory
from tests.doubles.mindspore_lite.tensor import Array, Native, Tensor, TensorMeta
from tests.doubles.mindspore_lite.types import ModelType, lite_dtype, numpy_dtype

_BUILD_FAILED = "build_from_file failed! Error is Common error code."


class Model:
    """One graph. `predict` is serialised; after a wrong shape nothing works until a rebuild, or a
    run over the model's own inputs; after refused outputs only a rebuild helps."""

    def __init__(self) -> None:
        self._file: ModelFile | None = None
        self._weights: Memory | None = None
        self._lock = threading.Lock()

    def build_from_file(
        self,
        model_path: Any,
        model_type: Any,
        context: Any = None,
        config_path: Any = "",
        config_dict: Any = None,
    ) -> None:
        check_isinstance("model_path", model_path, str)
        check_isinstance("model_type", model_type, ModelType)
        check_isinstance("config_path", config_path, str)
        if context is None:
            context = Context()
        check_isinstance("context", context, Context)
        if not Path(model_path).exists():
            raise RuntimeError("build_from_file failed, model_path does not exist!")
        if config_path and not Path(config_path).exists():
            raise RuntimeError("build_from_file failed, config_path does not exist!")
        if "ASCEND_CUSTOM_OPP_PATH" not in os.environ:
            logging.getLogger().warning("Ascend custom operator path not found")
        native_log.warning("numa_adapter.cc:35] NUMAAdapter]", "Open libnuma.so failed!")
        self._ascend = "ascend" in context.target
        self._provider = context.ascend.provider
        self._device = f"ascend:{context.ascend.device_id}"
        self._load(Path(model_path))
        NPU.builds += 1

    def _load(self, path: Path) -> None:
        if self._ascend and not NPU.cann:
            native_log.error(
                "auto_registry.cc:40] RegAscend]",
                "dlopen libascend_kernel_plugin_python.so failed, error: libgraph.so: "
                "cannot open shared object file",
            )
            native_log.error("cxx_api.cc:90] Build]", "Init session failed.")
            raise RuntimeError(_BUILD_FAILED)
        file = read_model(path)
        if file is None:
            native_log.error("mindir_loader.cc:71] LoadModel]", "parse model failed")
            raise RuntimeError(_BUILD_FAILED)
        if path.stem.endswith("_graph") and not (variables_of(path) / "data_0").is_file():
            native_log.error(
                "load_mindir.cc:300] GetTensorDataFromExternal]",
                f"Open file {variables_of(path).name}/data_0 failed",
            )
            raise RuntimeError(_BUILD_FAILED)
        if self._ascend:
            self._weights = NPU.allocate(file.weights)
            if self._weights is None:
                native_log.error(
                    "model_infer.cc:77] Load]", "Malloc device memory for weights failed"
                )
                raise RuntimeError(_BUILD_FAILED)
        self._file = file
        self._gears = Gears(file.input_shape, file.dynamic_dims)
        self._ports = file.graph.inputs
        if file.input_shape and not file.dynamic_dims:
            shapes = file.input_shape.split(";")
            self._ports = tuple(
                _compiled(port, shape) for port, shape in zip(self._ports, shapes, strict=True)
            )
        self._inputs = [_session_tensor(port) for port in self._ports]
        self._outputs = [_session_tensor(port) for port in file.graph.outputs]
        self._given: list[weakref.ref[Native]] = []
        self._poisoned = self._dirty = False

    def get_inputs(self) -> list[Tensor]:
        self._built()
        return [Tensor(native) for native in self._inputs]

    def get_outputs(self) -> tuple[TensorMeta, ...]:
        file = self._built()
        shapes = [list(port.shape) for port in file.graph.outputs]
        if any(-1 in port.shape for port in self._ports):
            shapes = [[-1] for _ in shapes]  # lost until it has run
        return tuple(
            TensorMeta(port.name, lite_dtype(port.dtype), shape)
            for port, shape in zip(file.graph.outputs, shapes, strict=True)
        )

    def get_model_info(self, key: Any) -> str:
        check_isinstance("key", key, str)
        file = self._built()
        return {"input_shape": file.input_shape, "dynamic_dims": file.dynamic_dims}.get(key, "")

    def resize(self, inputs: Any, dims: Any) -> None:
        check_isinstance("inputs", inputs, (list, tuple))
        check_isinstance("dims", dims, (list, tuple))
        if len(inputs) != len(dims):
            raise ValueError(
                f"inputs' size does not match dims' size, but got inputs: {len(inputs)}, "
                f"dims: {len(dims)}."
            )
        for item in dims:
            check_ints("dims", item)
        NPU.resizes += 1
        if self._ascend and not self._fits([list(item) for item in dims]):
            self._poisoned = True
            raise RuntimeError("resize failed! Error is Common error code.")
        for native, item in zip(self._inputs, dims, strict=True):
            if native.shape != list(item):
                native.shape, native.host = list(item), None

    def predict(self, inputs: Any, outputs: Any = None) -> list[Tensor]:
        check_isinstance("inputs", inputs, (list, tuple))
        if outputs is not None:
            check_isinstance("outputs", outputs, list)
        if len(inputs) != len(self._inputs):
            raise RuntimeError(
                f"model input len:{len(inputs)} not equal input len:{len(self._inputs)}!"
            )
        with self._lock:
            natives = [self._input(index, item) for index, item in enumerate(inputs)]
            given = [item._native for item in outputs or []]
            return self._predict(natives, given)

    def _input(self, index: int, item: Any) -> Native:
        if isinstance(item, np.ndarray):
            Tensor(self._inputs[index]).set_data_from_numpy(item)
            return self._inputs[index]
        check_isinstance("inputs element", item, Tensor)
        native: Native = item._native
        return native

    def _predict(self, natives: list[Native], given: list[Native]) -> list[Tensor]:
        file = self._built()
        NPU.predicts += 1
        if any(reference() is None for reference in self._given):
            raise SystemError("use after free: an output tensor of the last predict is gone")
        if all(mine is theirs for mine, theirs in zip(self._inputs, natives, strict=True)):
            self._poisoned = False
        if self._dirty or self._poisoned or NPU.take("fail_predicts"):
            self._fail("model_impl.cc:880] Predict]", "Execute graph failed.")
        arrays = [
            self._array(native, port) for native, port in zip(natives, self._ports, strict=True)
        ]
        if self._ascend and not self._fits([list(array.shape) for array in arrays]):
            self._poisoned = True
            self._fail("dyn_shape_process.cc:250] SetDynamicDims]", "Not support dynamic input")
        if self._ascend and given:
            self._check_outputs(given)
        self._check_room()
        try:
            results = file.graph.run(arrays)
        except Exception as error:  # noqa: BLE001  (the real one tells nothing either)
            self._fail("model_process.cc:1330] Execute]", " ".join(str(error).split()))
        NPU.ran.append(f"{len(results)} outputs of {file.graph.outputs[0].name}")
        if self._ascend:
            NPU.uploaded += sum(a.nbytes for n, a in zip(natives, arrays, strict=True)
                                if n.memory is None)  # fmt: skip
        if not given:
            return self._own(results)
        if self._ascend and NPU.given_outputs == "take":
            self._write(natives, given, results)
        return [Tensor(native) for native in given]  # on a CPU nobody has written there

    def _array(self, native: Native, port: Port) -> Array:
        if native.dtype is not lite_dtype(port.dtype):
            self._fail(
                "graph_executor.cc:210] CopyInput]",
                f"{port.name} has a different data type from input {native.dtype}",
            )
        if len(native.shape) != len(port.shape) or any(
            wanted not in (-1, got) for wanted, got in zip(port.shape, native.shape, strict=True)
        ):
            fixed = int(np.prod(port.shape))
            if fixed > 0 and native.nbytes == fixed * port.dtype.itemsize:
                return native.read().reshape(port.shape)  # as many bytes: nobody looks closer
            self._poisoned = True
            self._fail("dyn_shape_process.cc:88] CheckShape]", "Not support dynamic input")
        return native.read().copy()

    def _fits(self, shapes: list[list[int]]) -> bool:
        if self._gears.allows(shapes):
            return True
        native_log.error(
            "dyn_shape_process.cc:240] SetDynamicDims]",
            f"aclmdlSetInputDynamicDims failed {shapes}",
        )
        return False

    def _check_outputs(self, given: list[Native]) -> None:
        file = self._built()
        if len(given) != len(file.graph.outputs):
            self._fail(
                "single_op_session.cc:452] CheckOutputs]",
                f"Given outputs size {len(given)} not equal to {len(file.graph.outputs)}",
            )
        for native, port in zip(given, file.graph.outputs, strict=True):
            if native.dtype is not lite_dtype(port.dtype):
                self._fail("model_process.cc:1240] CheckOutput]", f"{port.name} data type differs")
            if native.from_numpy:
                native_log.warning("tensor_numpy_impl.h:56] SetShape]", "can not set shape")
        if NPU.given_outputs == "refuse":
            self._dirty = True
            self._fail("model_process.cc:1390] Execute]", "aclmdlExecute failed, ret 507011")

    def _check_room(self) -> None:
        if self._ascend and NPU.used + NPU.workspace > NPU.limit:
            self._poisoned = True
            self._fail("model_process.cc:1290] Execute]", "Malloc device memory of a run failed")

    def _write(self, read: list[Native], given: list[Native], results: list[Array]) -> None:
        sources = {id(native.memory) for native in read if native.memory is not None}
        for native, result in zip(given, results, strict=True):
            if native.nbytes != result.nbytes:
                self._fail(
                    "model_process.cc:1250] CheckOutput]",
                    f"output size {result.nbytes} not equal to given {native.nbytes}",
                )
            if native.shape != list(result.shape):
                native_log.warning("model_process.cc:1270] CheckOutput]", "shape differs")
        for native, result in zip(given, results, strict=True):
            if native.memory is not None and id(native.memory) in sources:
                NPU.aliased += 1
                native.memory.data[:] = 0x7F  # written while it is read: nobody knows what
            elif native.memory is not None and self._provider == "ge":
                native.host = result.copy()  # the device's side stays as it was
            else:
                native.fill(result)
                NPU.downloaded += result.nbytes if native.memory is None else 0
        self._given = [weakref.ref(native, _gone) for native in given]

    def _own(self, results: list[Array]) -> list[Tensor]:
        self._given = []
        for native, result in zip(self._outputs, results, strict=True):
            if native.shape != list(result.shape):
                native.shape, native.host = list(result.shape), None
            native.fill(result)
            NPU.downloaded += result.nbytes if self._ascend else 0
        return [Tensor(native) for native in self._outputs]

    def _built(self) -> ModelFile:
        if self._file is None:
            raise RuntimeError("model is not built")
        return self._file

    def _fail(self, place: str, message: str) -> NoReturn:
        native_log.error(place, message)
        raise RuntimeError("predict failed!")


def _gone(_: weakref.ref[Native]) -> None:
    """A model that is alive has an output tensor that is not."""
    NPU.dangling += 1


def _compiled(port: Port, shape: str) -> Port:
    """With the sizes that the converter was given, "name:1,32"."""
    sizes = tuple(int(size) for size in shape.rpartition(":")[2].split(","))
    return Port(port.name, sizes, port.dtype)


def _session_tensor(port: Port) -> Native:
    native = Native(list(port.shape), lite_dtype(port.dtype))
    native.name = port.name
    if all(axis > 0 for axis in port.shape):
        native.host = np.zeros(port.shape, numpy_dtype(native.dtype))
    return native
