"""Graphs that multiply in int8: what is in them, and what they compute whole, in pieces, padded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from q35chat.ascend.diagnosis import KERNELS
from q35chat.bundle.bundle import Bundle
from q35export.ascend.converter import command_text
from q35export.ascend.converter_config import read_inputs
from q35export.ascend.reference import GraphExecutor
from q35export.calibration.int8_steps import LM_HEAD
from q35export.verify.metrics import difference
from tests.ascend.chatting import HELLO, Bundles, OpenChat, ask
from tests.ascend.conftest import Export
from tests.doubles.fake_converter import refused
from tests.support.ascend import AscendChat, Exported
from tests.support.converter import vendor

SHAPES = ("plain", "true_heads")
TEXT = Path(__file__).parents[2] / "README.md"


def ids_of(exported: Exported, count: int) -> list[int]:
    generator = np.random.default_rng(7)
    ids: list[int] = generator.integers(0, exported.config.text.vocab_size - 20, count).tolist()
    return ids


def weights_of(graph: GraphExecutor) -> dict[str, Counter[str]]:
    """By the kernel or operator that multiplies by them, the matrices of a graph."""
    found: dict[str, Counter[str]] = {}
    for node in ir.load(graph.path).graph:
        kind = node.attributes.get_string("type") if node.op_type == "Custom" else node.op_type
        for value in node.inputs:
            if value is not None and isinstance(value.const_value, ir.ExternalTensor):
                found.setdefault(str(kind), Counter())[str(value.name)] += 1
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_and_decode_multiply_the_same_matrices_in_int8(
    exported: Export, shape: str
) -> None:
    graphs = exported(shape, w8a8=True).graphs
    prefill, decode = (weights_of(graphs[name]) for name in ("prefill", "decode"))
    in_int8 = {name for name in decode["QuantBatchMatmul"] if not name.endswith(".scales")}

    assert decode["QuantBatchMatmul"] == prefill["QuantBatchMatmul"]
    assert decode["MatMul"] == prefill["MatMul"]
    assert LM_HEAD in in_int8
    layers = len(exported(shape).config.text.layer_types)
    assert len(in_int8) + len(decode["MatMul"]) == 5 * layers - (
        exported(shape).config.text.layer_types.count("full_attention") - 1
    )
    assert {name for name in decode["MatMul"] if name.endswith("ab")}
    for name in ("prefill", "decode"):
        kinds = Counter(node.kind for node in graphs[name].custom_nodes)
        assert kinds["AscendQuant"] == kinds["QuantBatchMatmul"] == len(in_int8)


def test_a_matrix_in_int8_takes_half_the_bytes(exported: Export) -> None:
    plain, halved = (exported("plain", **options) for options in ({}, {"w8a8": True}))
    sizes = [one.graphs["decode"].path.with_name("model.bin").stat().st_size
             for one in (plain, halved)]  # fmt: skip
    table = 2 * plain.config.text.vocab_size * plain.config.text.hidden_size
    assert sizes[1] - table < 0.75 * (sizes[0] - table)


@pytest.mark.parametrize("options", [{}, {"fused_prefill": False, "fused_decode": False}])
def test_padding_changes_no_bit(exported: Export, options: dict[str, bool]) -> None:
    graphs = exported("plain", w8a8=True, dtype="fp32", gears=(32, 64), **options)
    ids = ids_of(graphs, 21)
    exact, padded = AscendChat(graphs), AscendChat(graphs)

    np.testing.assert_array_equal(padded.prefill(ids, gear=32), exact.prefill(ids))
    for name in ("conv_states", "recurrent_states"):
        np.testing.assert_array_equal(padded.states[name], exact.states[name])
    np.testing.assert_array_equal(padded.step(5), exact.step(5))


@pytest.mark.parametrize("shape", SHAPES)
def test_step_by_step_and_whole_agree_and_both_stay_near_the_floats(
    exported: Export, shape: str
) -> None:
    graphs = exported(shape, w8a8=True)
    ids = ids_of(graphs, 24)
    whole, steps, floats = AscendChat(graphs), AscendChat(graphs), AscendChat(exported(shape))
    logits = whole.prefill(ids)
    steps.prefill(ids[:16])
    for token in ids[16:]:
        last = steps.step(token)

    assert difference(last, logits).nrmse < 0.05
    apart = difference(logits, floats.prefill(ids))
    assert 1e-4 < apart.nrmse < 0.2
    for name, state in floats.by_layer().items():
        assert difference(whole.by_layer()[name], state).cosine > 0.98, name


def test_without_the_rounding_of_inputs_the_weights_are_all_that_differs(exported: Export) -> None:
    graphs = exported("plain", w8a8=True, dtype="fp32")
    ids = ids_of(graphs, 24)
    wanted = AscendChat(exported("plain", dtype="fp32")).prefill(ids)
    rounded = AscendChat(graphs).prefill(ids)
    unrounded = Exported(
        graphs.config,
        graphs.options,
        {name: GraphExecutor(one.path, rounds_inputs=False) for name, one in graphs.graphs.items()},
    )
    exact = AscendChat(unrounded).prefill(ids)
    assert difference(exact, wanted).nrmse < difference(rounded, wanted).nrmse


def test_scales_that_a_converter_makes_narrow_are_refused(exported: Export) -> None:
    path = exported("plain", w8a8=True).graphs["decode"].path

    kernels = {"ASCEND_CUSTOM_OPP_PATH": str(vendor(path.parent / "vendor", *KERNELS))}
    assert "QuantBatchMatmul: input scale does not take DT_INT32" in refused(path, kernels)
    assert not refused(path, kernels | {"KEEP_ORIGIN_DTYPE": "1"})
    line = command_text("a", "b", "c", keeps_int64=read_inputs(path).in_int8)
    assert line.startswith("KEEP_ORIGIN_DTYPE=1 converter_lite --fmk=ONNX ")


def test_a_bundle_in_int8_chats_on_the_npu_and_says_what_it_keeps(
    open_chat: OpenChat, bundles: Bundles
) -> None:
    options = {"precision": "w8a8", "gears": (16, 64), "image_gears": (16,), "calibration": TEXT}
    engine = open_chat("demo in int8", **options)
    manifest = Bundle.open(bundles("demo in int8", **options)).manifest

    assert len(ask(engine, HELLO).token_ids) > 1
    assert engine.model.precision == manifest.precision == "w8a8"
    assert engine.model.kept == manifest.kept
    assert manifest.kept.endswith("of first choices")
    assert manifest.options["prefill"]["kld"] == manifest.options["decode"]["kld"]
