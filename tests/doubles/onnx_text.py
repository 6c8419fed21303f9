"""A small ONNX text graph that honours the contract, for tests of the runtime.

One grouped-query attention layer whose KV cache is written in place, one convolution-like state
and one accumulating state; weights are random but fixed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from q35chat.engine.session import Array

CAPACITY, VOCAB, WIDTH, HEADS = 12, 40, 16, 2
KV_SHAPE = (1, 1, CAPACITY, WIDTH // HEADS)
STATES = {"conv_0": (1, WIDTH, 3), "recurrent_0": (1, 1, 1, WIDTH)}
CACHES = {"key_1": KV_SHAPE, "value_1": KV_SHAPE}
_FLOAT, _INT64, _INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


def write_text_graph(path: Path, *, external: bool = False, in_place: bool = True) -> Path:
    """Write the graph to `path`, with its weights beside it if `external`."""
    model = helper.make_model(
        helper.make_graph(_nodes(), "text", _inputs(), _outputs(), _weights()),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    metadata = {"q35chat.contract": "1", "q35chat.graph": "text"}
    if in_place:
        metadata["q35chat.in_place"] = ",".join(f"past_{name}" for name in CACHES)
    helper.set_model_props(model, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        model,
        path,
        save_as_external_data=external,
        location="weights.data" if external else None,
        size_threshold=512,
    )
    return path


def _inputs() -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info("input_ids", _INT64, [1, "T"]),
        helper.make_tensor_value_info("attention_mask", _INT32, [1, CAPACITY]),
        helper.make_tensor_value_info("position_ids", _INT64, [3, 1, "T"]),
        helper.make_tensor_value_info("image_embeds", _FLOAT, ["M", WIDTH]),
        *_states("past"),
    ]


def _outputs() -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info("logits", _FLOAT, [1, 1, VOCAB]),
        *_states("present"),
    ]


def _states(side: str) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(f"{side}_{name}", _FLOAT, shape)
        for name, shape in (STATES | CACHES).items()
    ]


def _weights() -> list[onnx.TensorProto]:
    random = np.random.default_rng(7)
    arrays: dict[str, Array] = {
        "embed": random.normal(size=(VOCAB, WIDTH)).astype(np.float32),
        "query": random.normal(size=(WIDTH, WIDTH)).astype(np.float32),
        "kv": random.normal(size=(WIDTH, WIDTH // HEADS)).astype(np.float32),
        "head": random.normal(size=(WIDTH, VOCAB)).astype(np.float32),
        "one": np.array(1, np.int32),
        "axis": np.array([1], np.int64),
        "last": np.array([-1], np.int64),
        "tail": np.array([-3], np.int64),
        "end": np.array([2**62], np.int64),
        "time": np.array([1], np.int64),
        "channels": np.array([2], np.int64),
        "state_shape": np.array([1, 1, 1, WIDTH], np.int64),
        "scalar": np.array([], np.int64),
    }
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def _nodes() -> list[onnx.NodeProto]:
    node = helper.make_node
    return [
        node("Gather", ["embed", "input_ids"], ["x"]),
        node("Transpose", ["x"], ["x_t"], perm=[0, 2, 1]),
        node("Concat", ["past_conv_0", "x_t"], ["window"], axis=2),
        node("Slice", ["window", "tail", "end", "channels"], ["present_conv_0"]),
        node("ReduceSum", ["x", "time"], ["added"], keepdims=1),
        node("Reshape", ["added", "state_shape"], ["added_4d"]),
        node("Add", ["past_recurrent_0", "added_4d"], ["present_recurrent_0"]),
        node("MatMul", ["x", "query"], ["q"]),
        node("MatMul", ["x", "kv"], ["k"]),
        node("ReduceSum", ["attention_mask", "axis"], ["total_1d"], keepdims=0),
        node("Sub", ["total_1d", "one"], ["seqlens"]),
        node("Reshape", ["total_1d", "scalar"], ["total"]),
        node(
            "GroupQueryAttention",
            ["q", "k", "k", "past_key_1", "past_value_1", "seqlens", "total"],
            ["attended", "present_key_1", "present_value_1"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=1,
        ),
        node("Slice", ["attended", "last", "end", "time"], ["hidden"]),
        node("ReduceMean", ["present_conv_0", "channels"], ["mixed"], keepdims=0),
        node("Add", ["hidden", "mixed"], ["hidden_1"]),
        node("Squeeze", ["present_recurrent_0", "time"], ["memory"]),
        node("Add", ["hidden_1", "memory"], ["hidden_2"]),
        node("MatMul", ["hidden_2", "head"], ["logits"]),
    ]
