"""Runtimes behind `GraphSession`, one module each, and the choice between them.

Importing this package loads no native library, nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat.ascend.ports import Gear
from q35chat.ascend.residency import Mode
from q35chat.errors import RuntimeFailure
from q35chat.processes import program

if TYPE_CHECKING:
    from q35chat.engine.session import GraphSession

OpenGraph = Callable[[Path], "GraphSession"]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """`threads` None means every CPU that this process may use; the rest is for an NPU.

    `needed` is what all graphs take on the device, in bytes; `gears` are used for a graph, by its
    kind, whose file does not tell its own, and `metadata`, by kind, is what its maker says of it;
    `log` takes the native library's messages, with the process's number put into its name.
    """

    threads: int | None = None
    device_id: int = 0
    residency: Mode = "auto"
    host_states: bool = False
    needed: int = 0
    gears: Mapping[str, Sequence[Gear]] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    log: Path = Path("mindspore-lite.log")


def open_session(path: Path, target: str, threads: int | None = None) -> GraphSession:
    """Load the graph file `path` with the runtime of `target`; one graph on its own.

    Raises RuntimeFailure.
    """
    return opener(target, RuntimeOptions(threads=threads))(path)


def opener(target: str, options: RuntimeOptions) -> OpenGraph:
    """A function that loads the graph files of one bundle. Raises RuntimeFailure."""
    if target == "cpu":
        return lambda path: _on_cpu(path, options.threads)
    if target == "ascend-310p":
        return _on_npu(options)
    raise RuntimeFailure(f"no runtime for target {target!r}: this program runs cpu and ascend-310p")


def _on_cpu(path: Path, threads: int | None) -> GraphSession:
    from q35chat.runtimes.onnxruntime import OrtSession  # noqa: PLC0415  (heavy)

    return OrtSession(path, threads=threads)


def _on_npu(options: RuntimeOptions) -> OpenGraph:
    from q35chat.ascend.mindspore_lite import LiteDevice, LiteSession  # noqa: PLC0415
    from q35chat.ascend.native_log import native_log  # noqa: PLC0415
    from q35chat.ascend.npu_smi import free_bytes  # noqa: PLC0415
    from q35chat.ascend.residency import Residency, settle  # noqa: PLC0415

    device = LiteDevice(device_id=options.device_id, host_states=options.host_states)
    free = free_bytes(options.device_id) if options.residency == "auto" else None
    residency = Residency(settle(options.residency, options.needed, free))

    def open_graph(path: Path) -> GraphSession:
        if path.suffix == ".onnx":
            raise RuntimeFailure(
                f"{path} is not converted for the NPU: run `{program()} convert` on its bundle"
            )
        kind = graph_kind(path)
        return LiteSession(
            path,
            kind,
            device,
            native_log(options.log),
            residency=residency,
            gears=options.gears.get(kind, ()),
            metadata=options.metadata.get(kind),
        )

    return open_graph


def graph_kind(path: Path) -> str:
    """Which of the three graphs a file of the 310P is, from its name or its folder's."""
    for name in (path.stem, path.parent.name):
        for kind in ("prefill", "decode", "vision"):
            if kind in name.lower():
                return kind
    raise RuntimeFailure(f"{path} is named neither after prefill, decode nor vision: rename it")
