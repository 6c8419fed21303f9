"""Runs under Python 3.7 beside MindSpore Lite 2.0.0: `convert ONNX OUT`, or `run MINDIR IN OUT`.

IN and OUT of `run` are `.npz` files of arrays by name; every output is copied, as MindSpore Lite
hands out views of its own memory.
"""

from __future__ import annotations

import sys

import mindspore_lite as lite
import numpy as np

DTYPES = {"DataType.FLOAT32": np.float32, "DataType.INT32": np.int32, "DataType.INT64": np.int64}


def convert(source: str, out: str) -> None:
    converter = lite.Converter()
    converter.save_type = lite.ModelType.MINDIR
    converter.convert(fmk_type=lite.FmkType.ONNX, model_file=source, output_file=out)


def run(path: str, feeds: str, results: str) -> None:
    context = lite.Context()
    context.target = ["cpu"]
    model = lite.Model()
    model.build_from_file(path, lite.ModelType.MINDIR, context)
    arrays = np.load(feeds)
    inputs = model.get_inputs()
    shapes = [list(arrays[tensor.name].shape) for tensor in inputs]
    if shapes != [list(tensor.shape) for tensor in inputs]:
        model.resize(inputs, shapes)
        inputs = model.get_inputs()
    for tensor in inputs:
        array = arrays[tensor.name].astype(DTYPES[str(tensor.dtype)])
        tensor.set_data_from_numpy(np.ascontiguousarray(array))
    outputs = model.predict(inputs)
    np.savez(results, **{tensor.name: tensor.get_data_to_numpy().copy() for tensor in outputs})


if __name__ == "__main__":
    if sys.argv[1] == "convert":
        convert(*sys.argv[2:])
    else:
        run(*sys.argv[2:])
