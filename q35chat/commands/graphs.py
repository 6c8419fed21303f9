"""How the graphs of a bundle are opened: which runtime, and what it says of damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.bundle.bundle import Bundle
from q35chat.commands.checks import check_device
from q35chat.commands.next_command import convert_command, doctor_command, left_to_convert
from q35chat.errors import RuntimeFailure
from q35chat.runtimes import cpu, runtime

if TYPE_CHECKING:
    from q35chat.engine.decoder import OpenGraph, Runtime
    from q35chat.engine.session import GraphSession


def graph_opener(bundle: Bundle, threads: int | None, npu: NpuOptions = DEFAULT_NPU) -> Runtime:
    """What runs `bundle`. Raises RuntimeFailure, and UsageError for options that its target
    cannot honour."""
    manifest = bundle.manifest
    if left := left_to_convert(manifest):
        raise RuntimeFailure(
            f"{bundle.path} is not converted for the NPU ({', '.join(left)}): "
            f"run {convert_command(bundle.path)}"
        )
    check_device(manifest.target, npu, threads)
    if manifest.target == "cpu":
        chosen = cpu(threads)
        return replace(chosen, open_graph=_advising(chosen.open_graph, bundle.path))
    return runtime(bundle, threads, npu)


def _advising(open_graph: OpenGraph, folder: Path) -> OpenGraph:
    """`open_graph`; where a file cannot be loaded, it says how to look for damage."""

    def opened(path: Path) -> GraphSession:
        try:
            return open_graph(path)
        except RuntimeFailure as error:
            advice = f"`{doctor_command(folder)}` says whether the bundle is damaged"
            raise RuntimeFailure(f"{error}; {advice}") from error

    return opened
