"""The parts of a bundle that are built from weights, each in a folder of its own: a graph, or the
decoder's and that of its draft head over one weights file.

The only module that knows which graph builder makes which component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from q35chat.errors import Option, Remedy, UsageError
from q35export.ascend.graphs.options import AscendOptions
from q35export.config import ModelConfig, TextConfig
from q35export.matrix import TensorSource
from q35export.precision import FLOAT_PLAN, PrecisionPlan, StoredAs, precision_plan
from q35export.request import COMPONENTS, W8A8, ExportRequest
from q35export.weights import WeightSink

# What components have that were exported before there was such an option.
OLDER_OPTIONS: dict[str, str | int] = {
    "mtp": "none", "block_size": 32, "rounding": "nearest", "bits": "auto"
}  # fmt: skip
_NPU = "ascend-310p"
# Fields of a request that only one target reads.
_OPTIONS_OF = {
    "cpu": {
        "precision": Option.PRECISION,
        "block_size": Option.BLOCK_SIZE,
        "mtp": Option.MTP,
        "calibrate": Option.NO_CALIBRATE,
        "calibration": Option.CALIBRATION,
        "bits": Option.BITS,
        "stream": Option.STREAM,
    },
    _NPU: {
        "dtype": Option.DTYPE,
        "gears": Option.GEARS,
        "image_gears": Option.IMAGE_GEARS,
        "fused_prefill": Option.NO_FUSED_PREFILL,
        "fused_decode": Option.NO_FUSED_DECODE,
        "stateless_prefill": Option.STATELESS_PREFILL,
        "step_tokens": Option.STEP_TOKENS,
    },
}
_OF_W8A8 = {"precision", "calibration"}  # which an NPU reads, too
GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "model.bin"

Int64 = npt.NDArray[np.int64]
Built = Mapping[str, ir.Model]
Builder = Callable[[ExportRequest, ModelConfig, TensorSource, WeightSink], Built]
Builders = Mapping[str, Builder]


def graph_path(component: str, graph: str) -> str:
    """Where in the bundle a graph of the component lies; the component's own has its name."""
    return f"{component}/{GRAPH_FILE if graph == component else f'{graph}.onnx'}"


def builders_for(request: ExportRequest) -> Builders:
    """The graph builders of the request's target by component; each gives graphs by name.

    Raises UsageError for options that the target cannot honour: those of another target, unless
    they have their defaults, and impossible ones.
    """
    target = request.runs_on
    if found := next(_of_others(request, target), None):
        option, owner = found
        raise UsageError(
            f"{option} is for {Option.TARGET} {owner}, found {target}:",
            Remedy.ANOTHER_TARGET,
            target=owner,
        )
    if target == _NPU:
        ascend_options(request)
        return {name: ascend_builder(name) for name in COMPONENTS[target]}
    return {"vision": _vision, "text": text_builder()}


def _of_others(request: ExportRequest, target: str) -> Iterator[tuple[str, str]]:
    """What is asked for that `target` does not have, and the target that has it."""
    default = ExportRequest()
    in_int8 = request.w8a8 and target == _NPU
    if request.w8a8 and not in_int8:
        yield f"{Option.PRECISION} {W8A8}", _NPU
    for owner, options in _OPTIONS_OF.items():
        for name, option in options.items():
            given = getattr(request, name) != getattr(default, name)
            if given and owner != target and not (in_int8 and name in _OF_W8A8):
                yield str(option), owner


def ascend_options(request: ExportRequest) -> AscendOptions:
    """The request's options of the 310P graphs; UsageError for impossible ones."""
    _, *names = (field.name for field in fields(AscendOptions))
    return AscendOptions(request.max_seq_len, **{name: getattr(request, name) for name in names})


def component_options(request: ExportRequest, component: str) -> dict[str, str | int]:
    """What of the request shapes this component; equal options give an equal component."""
    if request.target == _NPU:
        return _ascend_options(request, ascend_options(request), component)
    weights: dict[str, str | int] = {"precision": request.stored_as}
    if request.stored_as != "fp32":
        weights["block_size"] = request.block_size or "auto"
    if component == "vision":
        return weights
    if request.rounding != "nearest":
        weights["rounding"] = request.rounding
    if request.rounding == "calibrated":
        from q35export.calibration.text import text_digest  # noqa: PLC0415

        weights["calibration"] = text_digest(request.calibration)
    if request.stored_as == "int4":
        weights["bits"] = OLDER_OPTIONS["bits"] if request.bits is None else f"{request.bits:g}"
    mtp = "head" if request.mtp else OLDER_OPTIONS["mtp"]
    return {**weights, "max_seq_len": request.max_seq_len, "mtp": mtp}


def shared_options(options: Mapping[str, str | int]) -> dict[str, str | int]:
    """What of a component's options the other components must have alike to work with it."""
    shared = ("max_seq_len", "cache", "precision")
    return {name: options[name] for name in shared} if "cache" in options else {}


def _ascend_options(
    request: ExportRequest, options: AscendOptions, component: str
) -> dict[str, str | int]:
    gears, image_gears = (",".join(map(str, each)) for each in (options.gears, options.image_gears))
    if component == "vision":
        return {"precision": options.dtype, "image_gears": image_gears}
    shaped: dict[str, str | int] = {
        "precision": options.dtype,
        "max_seq_len": options.capacity,
        "cache": "fixed" if options.fixed_cache else "growing",
    }
    if options.w8a8:
        from q35export.calibration.text import text_digest  # noqa: PLC0415

        told = {"precision": W8A8, "dtype": options.dtype, "rounding": request.rounding}
        shaped |= {**told, "calibration": text_digest(request.calibration)}
    rows = options.step_tokens if component == "decode" else options.prefill_rows
    if rows > 1:
        shaped["step_tokens"] = rows
    if component == "decode":
        return shaped
    return {
        **shaped,
        "gears": gears,
        "image_gears": image_gears,
        "delta_rule": "fused" if options.fused_prefill else "unfused",
        "states": "taken" if options.stateful_prefill else "none",
    }


def ascend_builder(component: str, steps: Mapping[str, float] | None = None) -> Builder:
    """The builder of one of an NPU's graphs; `steps` are those of the matrices in int8, where a
    calibration has found them."""

    def build(
        request: ExportRequest, config: ModelConfig, source: TensorSource, sink: WeightSink
    ) -> Built:
        from q35export.ascend.graphs import BUILDERS  # noqa: PLC0415

        plan = FLOAT_PLAN
        if request.w8a8 and component != "vision":
            from q35export.calibration.int8_steps import planned_steps  # noqa: PLC0415

            plan = text_plan(request)
            plan = replace(plan, steps=steps or planned_steps(config.text, plan))
        options = ascend_options(request)
        return {component: BUILDERS[component](config, source, sink, options, plan)}

    return build


def text_plan(request: ExportRequest) -> PrecisionPlan:
    """How the decoder is stored, its matrices not decided on one by one."""
    plan = precision_plan(request.stored_as, request.block_size)
    return replace(plan, turned=request.rounding != "nearest")


def budgeted_plan(
    plan: PrecisionPlan,
    config: TextConfig,
    source: TensorSource,
    costs: Mapping[str, float],
    bits: float,
) -> PrecisionPlan:
    """The plan with the bits that a weight may take spent by what each matrix costs, where that is
    known."""
    from q35export.calibration.allocation import allocate  # noqa: PLC0415
    from q35export.calibration.sensitivity import budgeted  # noqa: PLC0415

    formats = allocate(budgeted(config, source, plan), costs, bits)
    return replace(plan, matrices={name: StoredAs(fmt) for name, fmt in formats.items()})


def text_builder(
    matrices: Mapping[str, StoredAs] | None = None, drafts: Int64 | None = None
) -> Builder:
    """The builder of the decoder, with its draft head where asked for; `matrices` are those that a
    calibration has rounded, `drafts` the tokens that the head chooses among, if not all."""

    def build(
        request: ExportRequest, config: ModelConfig, source: TensorSource, sink: WeightSink
    ) -> Built:
        from q35export.graphs.mtp import build_text_and_head  # noqa: PLC0415
        from q35export.graphs.text import build_text_graph  # noqa: PLC0415

        plan, capacity = replace(text_plan(request), matrices=matrices or {}), request.max_seq_len
        if request.budget and matrices is None:
            plan = budgeted_plan(plan, config.text, source, {}, request.budget)
        if request.mtp:
            text, head = build_text_and_head(
                config, source, sink, capacity=capacity, plan=plan, drafts=drafts
            )
            return {"text": text, "mtp": head}
        return {"text": build_text_graph(config, source, sink, capacity=capacity, plan=plan)}

    return build


def _vision(
    request: ExportRequest, config: ModelConfig, source: TensorSource, sink: WeightSink
) -> Built:
    from q35export.graphs.vision import build_vision_graph  # noqa: PLC0415

    plan = precision_plan(request.stored_as, request.block_size)
    return {"vision": build_vision_graph(config, source, sink, plan=plan)}
