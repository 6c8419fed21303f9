"""A small builder over `onnx_ir`: nodes, constants and weights of one graph.

Knows ONNX, not the model. Values are named after what they hold so that a profile of the
running graph can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35export.weights import Pieces, Stored, WeightSink

Array = npt.NDArray[Any]
Dim: TypeAlias = int | str
IR_VERSION = 10


class Graph:
    """One ONNX graph under construction."""

    def __init__(self, name: str, opset: int, sink: WeightSink) -> None:
        self.sink = sink
        self._root = ir.Graph((), (), nodes=(), opset_imports={"": opset}, name=name)
        self._graph = self._root
        self._scope: list[str] = []
        self._names: dict[str, int] = {}
        self._constants: dict[tuple[bytes, tuple[int, ...], str], ir.Value] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """A context in which new values are named `name/...`."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    @contextmanager
    def branch(self, name: str) -> Iterator[ir.Graph]:
        """A context whose nodes go into a graph of their own, for an attribute of a node of this
        one; they may use every value that is there."""
        outer, self._graph = self._graph, ir.Graph((), (), nodes=(), name=name)
        try:
            yield self._graph
        finally:
            self._graph = outer

    def scoped(self, name: str) -> str:
        """`name` as the present scope has it."""
        return "/".join([*self._scope, name])

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> ir.Value:
        """Declare a graph input; a string is a dynamic axis."""
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        self._graph.inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> None:
        """Declare `value` as the graph output `name`."""
        value.name = name
        value.type = ir.TensorType(dtype)
        value.shape = ir.Shape(shape)
        self._graph.outputs.append(value)

    def op(
        self, kind: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any
    ) -> ir.Value:
        """Add a node with one output."""
        return self.ops(kind, *inputs, domain=domain, outputs=1, **attributes)[0]

    def ops(
        self, kind: str, *inputs: ir.Value | None, outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[ir.Value, ...]:
        """Add a node with `outputs` outputs; trailing absent inputs are dropped."""
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        name = self._unique(kind)
        values = [
            ir.Value(name=name if outputs == 1 else f"{name}.{index}") for index in range(outputs)
        ]
        if domain:
            self._root.opset_imports.setdefault(domain, 1)
        self._graph.append(
            ir.node(kind, operands, attributes, domain=domain, outputs=values, name=name)
        )
        return tuple(values)

    def split(self, x: ir.Value, *widths: int) -> tuple[ir.Value, ...]:
        """Cut the last axis into pieces of the given widths."""
        return self.ops("Split", x, self.ints(*widths), outputs=len(widths), axis=-1)

    def reshape(self, x: ir.Value, *shape: int) -> ir.Value:
        """View with another shape; one axis may be -1."""
        return self.op("Reshape", x, self.ints(*shape))

    def constant(self, array: Array) -> ir.Value:
        """Add a small constant inside the graph file, of the array's shape and dtype; equal ones
        are shared."""
        key = (array.tobytes(), array.shape, array.dtype.str)
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self._initializer(ir.Tensor(array, name=name), name)
        return self._constants[key]

    def ints(self, *values: int) -> ir.Value:
        """A constant int64 vector."""
        return self.constant(np.array(values, dtype=np.int64))

    def scalar(self, value: int) -> ir.Value:
        """A constant int64 of rank 0."""
        return self.constant(np.array(value, dtype=np.int64))

    def weight(self, name: str, array: Array) -> ir.Value:
        """Add a tensor at hand, of its shape and dtype, stored outside the graph file."""
        stored = self.sink.store(array.nbytes, lambda: iter((array,)))
        return self.weight_at(name, stored, array.shape, ir.DataType.from_numpy(array.dtype))

    def streamed(
        self, name: str, shape: tuple[int, ...], dtype: ir.DataType, pieces: Pieces
    ) -> ir.Value:
        """A tensor whose contents come as pieces while they are written."""
        length = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self.weight_at(name, self.sink.store(int(length), pieces), shape, dtype)

    def weight_at(
        self, name: str, stored: Stored, shape: tuple[int, ...], dtype: ir.DataType
    ) -> ir.Value:
        """A tensor over bytes that are already stored."""
        unique = self._unique(name)
        return self._initializer(self.sink.tensor(unique, stored, shape, dtype), unique)

    def shared(self, value: ir.Value) -> ir.Value:
        """A weight of another graph over the same sink: the same bytes, written once."""
        tensor = value.const_value
        assert isinstance(tensor, ir.ExternalTensor)
        assert tensor.name is not None
        assert tensor.offset is not None
        assert tensor.length is not None
        stored = Stored(tensor.offset, tensor.length)
        return self.weight_at(tensor.name, stored, tuple(tensor.shape.numpy()), tensor.dtype)

    def model(self, metadata: dict[str, str]) -> ir.Model:
        """The finished model."""
        model = ir.Model(self._graph, ir_version=IR_VERSION, producer_name="q35export")
        model.metadata_props.update(metadata)
        return model

    def _initializer(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self._root.register_initializer(value)
        return value

    def _unique(self, name: str) -> str:
        full = self.scoped(name)
        count = self._names.get(full, 0)
        self._names[full] = count + 1
        return full if count == 0 else f"{full}_{count}"
