"""`converter_lite` as the tests have it: strict about its configuration, known for its failures.

Writes files of the MindSpore Lite stand-in. `FAKE_CONVERTER_FAILS` names a failure of the real one
by its log; `FAKE_CONVERTER_ONLY` fails every graph but that one; with `FAKE_CONVERTER_RENAMES`
tensors lose their names; without `KEEP_ORIGIN_DTYPE` constants of 64 bits become such of 32, as in
the real one; with `FAKE_CONVERTER_BINDS` "position" it binds the inputs of a kernel one
after the other, as the converter of 2.7, which reads no `input_index`. The kernels of the delta
rules are those that the packages on `ASCEND_CUSTOM_OPP_PATH` list.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from q35export.ascend.converter_config import PRECISION_MODES, read_inputs
from tests.doubles.mindspore_lite.modelfile import write_model

FAILURES = {
    "no-cann": "[ERROR] LITE(1,7f,x):t [anf_transform.cc:451] RunConvertPass] "
    "Failed to create acl pass",
    "unknown-operator": "[ERROR] LITE(1,7f,x):t [onnx_op_parser.cc:3940] ConvertNodes] "
    "not support onnx data type Einsum2\nUNSUPPORTED OP LIST:\nFMKTYPE: ONNX, OP TYPE: Einsum2",
    "too-old": "[ERROR] LITE(1,7f,x):t [onnx_op_parser.cc:3940] ConvertNodes] "
    "not support onnx data type Custom\nUNSUPPORTED OP LIST:\nFMKTYPE: ONNX, OP TYPE: Custom",
    "no-vendor": "[ERROR] GE(1,x):t [ge_api.cc:1] Build] EZ3003: No supported Ops kernel and "
    "engine are found for [Custom], optype [RecurrentGatedDeltaRule]",
    "disk-full": "[ERROR] LITE(1,7f,x):t [file_utils.cc:9] Write] No space left on device",
    "no-memory": "terminate called after throwing an instance of 'std::bad_alloc'",
    "silent": "",
}


IN_INT8 = ("AscendQuant", "QuantBatchMatmul")


def sections(path: Path) -> dict[str, dict[str, str]]:
    """The configuration as the converter reads it: one `=` a line, double quotes stripped."""
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.replace('"', "").strip()
        if not text or line.startswith("#"):
            continue
        if text.startswith("["):
            name = text.strip("[]")
            found[name] = {}
            continue
        key, value = text.split("=")
        found[name][key] = value
    return found


def checked_shapes(model: Path, options: dict[str, str]) -> tuple[str, str]:
    """The template and the gears, if they are those of the graph; SystemExit otherwise."""
    shapes = read_inputs(model).shapes
    template, dims = options.get("input_shape", ""), options.get("ge.dynamicDims", "")
    free = any(isinstance(axis, str) for shape in shapes.values() for axis in shape)
    if free and [entry.partition(":")[0] for entry in template.split(";")] != list(shapes):
        sys.exit("[ERROR] LITE(1,7f,x):t [acl_pass_impl.cc:899] SetGraphInputShape] names differ")
    if dims and not 2 <= len(dims.split(";")) <= 100:
        sys.exit("[ERROR] GE(1,x):t [a.cc:1] Build] dynamicDims must have 2 to 100 profiles")
    for gear in filter(None, dims.split(";")):
        if len(gear.split(",")) != template.count("-1"):
            sys.exit("[ERROR] GE(1,x):t [a.cc:1] Build] dynamicDims do not fit input_shape")
    return template, dims


def refused(model: Path, fakes: Mapping[str, str]) -> str:
    """What of the Custom nodes has no kernel, or another type than the input that it is bound to; a
    line of the log, empty where all are good."""
    listed: set[str] = {"Scatter", "IncreFlashAttention", *IN_INT8}  # CANN's own
    for folder in filter(None, fakes.get("ASCEND_CUSTOM_OPP_PATH", "").split(":")):
        for file in Path(folder).rglob("aic-*-ops-info.json"):
            listed |= set(json.loads(file.read_text(encoding="utf-8")))
    for node in onnx.load(model, load_external_data=False).graph.node:
        if node.op_type != "Custom":
            continue
        told = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        kind = told["type"].decode()
        if kind not in listed:
            return FAILURES["no-vendor"].replace("RecurrentGatedDeltaRule", kind)
        if kind == IN_INT8[1] and fakes.get("KEEP_ORIGIN_DTYPE") != "1":
            return f"[ERROR] GE(1,x):t [a.cc:1] Infer] {kind}: input scale does not take DT_INT32"
        gap = told["input_index"] != list(range(len(node.input)))
        if gap and kind not in IN_INT8 and fakes.get("FAKE_CONVERTER_BINDS") == "position":
            name = told["input_names"][len(node.input) - 1].decode()
            return f"[ERROR] GE(1,x):t [a.cc:1] Infer] {kind}: input {name} does not take DT_INT32"
    return ""


def convert(model: Path, output: Path, config_file: Path, fakes: Mapping[str, str]) -> str:
    """Write the model file of `output`; the log where it fails."""
    only = fakes.get("FAKE_CONVERTER_ONLY", output.name)
    failure = fakes.get("FAKE_CONVERTER_FAILS", "no-memory" if only != output.name else "")
    if failure:
        return FAILURES[failure] + "\n"
    if log := refused(model, fakes):
        return log + "\n"
    config = sections(config_file)
    compiler = config["acl_init_options"]
    assert compiler.pop("ge.exec.precision_mode") in PRECISION_MODES
    assert all(Path(mixed).is_file() for mixed in compiler.values())
    assert set(compiler) <= {"ge.exec.modify_mixlist"}
    assert set(config.get("ascend_context", {})) <= {"plugin_custom_ops"}
    template, dims = checked_shapes(model, config.get("acl_build_options", {}))
    loader = "load_renamed" if "FAKE_CONVERTER_RENAMES" in fakes else "load"
    split = "FAKE_CONVERTER_WHOLE" not in fakes
    write_model(
        output.with_name(output.name + ("_graph" if split else "") + ".mindir"),
        f"tests.doubles.mindspore_lite.onnx_graph:{loader}",
        {"path": str(model.resolve())},
        input_shape=template,
        dynamic_dims=dims,
        weights=sum(file.stat().st_size for file in model.parent.glob("model.bin")),
    ).chmod(0o400)
    return ""


def run(folder: Path, arguments: Sequence[str], fakes: Mapping[str, str]) -> tuple[int, str, str]:
    """What a start of the program in `folder` ends with: exit code, output and errors."""
    parser = argparse.ArgumentParser()
    for option in ("fmk", "optimize", "saveType", "modelFile", "outputFile", "configFile"):
        parser.add_argument(f"--{option}", required=True)
    try:
        given = parser.parse_args(arguments)
        assert (given.fmk, given.optimize, given.saveType) == ("ONNX", "ascend_oriented", "MINDIR")
        log = convert(
            folder / given.modelFile, folder / given.outputFile, folder / given.configFile, fakes
        )
    except SystemExit as refused:
        log = str(refused)
    except Exception:  # noqa: BLE001 - of a thread nobody would hear
        log = traceback.format_exc()
    return (1, "", log) if log else (0, "CONVERT RESULT SUCCESS:0\n", "")
