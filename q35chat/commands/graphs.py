"""How the graphs of a bundle are opened: which runtime, and what it must know of the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from q35chat.ascend.ports import Gear, manifest_gears
from q35chat.bundle.bundle import Bundle, Manifest
from q35chat.commands.checks import check_device
from q35chat.commands.next_command import convert_command, doctor_command, left_to_convert
from q35chat.commands.npu import NpuOptions, log_path
from q35chat.errors import RuntimeFailure
from q35chat.runtimes import OpenGraph, RuntimeOptions, opener

if TYPE_CHECKING:
    from q35chat.engine.session import GraphSession

_STATES_SHARE = 1.1  # graphs, and the states and buffers beside them


def graph_opener(bundle: Bundle, threads: int | None, npu: NpuOptions | None = None) -> OpenGraph:
    """A function that loads the graph files of `bundle`. Raises RuntimeFailure, and UsageError for
    options that its target cannot honour."""
    npu = npu or NpuOptions()
    manifest = bundle.manifest
    if left := left_to_convert(manifest):
        raise RuntimeFailure(
            f"{bundle.path} is not converted for the NPU ({', '.join(left)}): "
            f"run {convert_command(bundle.path)}"
        )
    check_device(manifest.target, npu, threads)
    options = RuntimeOptions(
        threads=threads,
        device_id=npu.device_id,
        residency=npu.residency,
        host_states=npu.host_state_roundtrip,
        needed=_needed(bundle),
        gears=_gears(manifest),
        metadata=_told(manifest),
        log=log_path(),
    )
    open_graph = opener(manifest.target, options)
    return _advising(open_graph, bundle.path) if manifest.target == "cpu" else open_graph


def _advising(open_graph: OpenGraph, folder: Path) -> OpenGraph:
    """`open_graph`; where a file cannot be loaded, it says how to look for damage."""

    def opened(path: Path) -> GraphSession:
        try:
            return open_graph(path)
        except RuntimeFailure as error:
            advice = f"`{doctor_command(folder)}` says whether the bundle is damaged"
            raise RuntimeFailure(f"{error}; {advice}") from error

    return opened


def _told(manifest: Manifest) -> Mapping[str, Mapping[str, str]]:
    """What q35chat knows of the prefill it exported, whatever the converted file tells."""
    options = manifest.options.get("prefill")
    if options is None:
        return {}
    told = {"q35chat.logits": "last"}
    if options.get("cache") == "fixed":
        told["q35chat.capacity"] = str(options.get("max_seq_len", ""))
    return {"prefill": told}


def _needed(bundle: Bundle) -> int:
    """Bytes of the converted graphs with their weights, and something for states."""
    graphs = [bundle.graph_path(name) for name in bundle.manifest.graphs]
    folders = [path.with_name(f"{path.stem.removesuffix('_graph')}_variables") for path in graphs]
    weights = [file for folder in folders for file in folder.glob("*")]
    return int(sum(file.stat().st_size for file in (*graphs, *weights)) * _STATES_SHARE)


def _gears(manifest: Manifest) -> Mapping[str, tuple[Gear, ...]]:
    """What the graphs were exported with, for files that do not tell it."""
    found = {}
    for kind, options in manifest.options.items():
        lengths, pictures = str(options.get("gears", "")), str(options.get("image_gears", ""))
        found[kind] = manifest_gears(kind, lengths, pictures, manifest.model.spatial_merge_size**2)
    return found
