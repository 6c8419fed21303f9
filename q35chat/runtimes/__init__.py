"""The runtime of a bundle, by its target. Importing this package loads no native library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.bundle.bundle import Bundle
from q35chat.errors import RuntimeFailure

if TYPE_CHECKING:
    from q35chat.engine.decoder import Runtime
    from q35chat.engine.one_graph import OneGraphRuntime


def runtime(bundle: Bundle, threads: int | None, npu: NpuOptions = DEFAULT_NPU) -> Runtime:
    """What runs `bundle`; `threads` None means every CPU that this process may use.

    Raises RuntimeFailure.
    """
    target = bundle.manifest.target
    if target == "cpu":
        return cpu(threads)
    if target == "ascend-310p":
        from q35chat.ascend.runtime import NpuRuntime  # noqa: PLC0415  (only with an NPU)

        return NpuRuntime(bundle, npu)
    raise RuntimeFailure(f"no runtime for target {target!r}: this program runs cpu and ascend-310p")


def cpu(threads: int | None = None) -> OneGraphRuntime:
    """ONNX Runtime on the CPU."""
    from q35chat.engine.one_graph import OneGraphRuntime  # noqa: PLC0415  (heavy)
    from q35chat.runtimes.onnxruntime import OrtSession  # noqa: PLC0415  (heavy)

    return OneGraphRuntime(lambda path: OrtSession(path, threads=threads))
