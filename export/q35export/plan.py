"""What an export will write and what the chat will then need, from shapes alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx_ir as ir

from q35chat.bundle.bundle import Bundle, FileEntry
from q35chat.bundle.manifest import PACKED_EXPERTS
from q35chat.errors import ExportError, Remedy
from q35chat.text import readable_size
from q35export.components import WEIGHTS_FILE, Builders, graph_path
from q35export.config import ModelConfig, TextConfig
from q35export.inventory import Inventory
from q35export.processor import bundled_name
from q35export.request import ChatMemory, ExportPlan, ExportRequest, PlannedFile
from q35export.weights import WeightSink

FLOAT_BYTES, HALF_BYTES = 4, 2
PROGRAM_BYTES = 100 << 20
"""About what a chat takes beside its model: Python, its libraries, the graph runtime."""
_LAYERS_BEFORE = 10  # one part of so many of a bundle is made before a file of weights goes
_MARGIN = 1.05  # file-system blocks, and the manifest


def make_plan(
    request: ExportRequest,
    config: ModelConfig,
    builders: Builders,
    processor: Mapping[str, bytes],
    keep: Bundle | None,
) -> ExportPlan:
    """Build every graph of the request without weights and add up the sizes.

    `keep` is the bundle whose remaining component is kept. Sizes are exact, the manifest aside; a
    graph whose matrices are rounded first, in another order, may have a few digits more or less.
    """
    files = [PlannedFile(bundled_name(name), len(data)) for name, data in processor.items()]
    kept_graphs = _kept_graphs(keep, request)
    twice = _kept_twice(kept_graphs)
    for component in request.components:
        sink = WeightSink()
        built = builders[component](request, config, Inventory(), sink)
        twice += _shared_bytes(built.values())
        files.append(PlannedFile(f"{component}/{WEIGHTS_FILE}", sink.size))
        for name, model in built.items():
            size = ir.to_proto(model).ByteSize()
            files.append(PlannedFile(graph_path(component, name), size))
    kept = tuple(PlannedFile(name, entry.size) for name, entry in kept_files(keep, request).items())
    capacity = request.max_seq_len
    if keep is not None and request.components == ("vision",):
        capacity = keep.manifest.capacity
    weights = sum(file.size for file in (*files, *kept) if file.path.endswith(f"/{WEIGHTS_FILE}"))
    if config.text.experts and request.stored_as != "fp32":
        weights = int(weights * PACKED_EXPERTS)
    memory = chat_memory(
        config.text,
        capacity,
        weights + twice,
        on_npu=request.target == "ascend-310p",
        mtp=request.mtp or "mtp" in kept_graphs,
    )
    return ExportPlan(request.out, tuple(files), kept, memory)


def _shared_bytes(graphs: Iterable[ir.Model]) -> int:
    """Bytes of the weights file that a second graph takes, too: each graph packs its own copy."""
    seen: set[int | None] = set()
    shared = 0
    for model in graphs:
        tensors = [value.const_value for value in model.graph.initializers.values()]
        parts = {t.offset: t.length or 0 for t in tensors if isinstance(t, ir.ExternalTensor)}
        shared += sum(length for offset, length in parts.items() if offset in seen)
        seen |= parts.keys()
    return shared


def _kept_graphs(keep: Bundle | None, request: ExportRequest) -> dict[str, Path]:
    """The graphs of `keep` that `request` does not build, by name."""
    if keep is None:
        return {}
    files = kept_files(keep, request)
    return {name: keep.path / file for name, file in keep.manifest.graphs.items() if file in files}


def _kept_twice(graphs: dict[str, Path]) -> int:
    """As `_shared_bytes`, of kept graphs: those in one folder share its weights file."""
    folders: dict[Path, list[Path]] = {}
    for path in graphs.values():
        folders.setdefault(path.parent, []).append(path)
    return sum(_shared_bytes(map(ir.load, paths)) for paths in folders.values() if paths[1:])


def kept_files(keep: Bundle | None, request: ExportRequest) -> dict[str, FileEntry]:
    """The files of the components of `keep` that `request` does not build, by path."""
    if keep is None:
        return {}
    folders = tuple(
        f"{component}/" for component in keep.manifest.graphs if component not in request.components
    )
    return {name: entry for name, entry in keep.manifest.files.items() if name.startswith(folders)}


def chat_memory(
    text: TextConfig, capacity: int, weights: int, *, on_npu: bool = False, mtp: bool = False
) -> ChatMemory:
    """Bytes for `weights` bytes of weights, FP32 states in two buffers, and one FP32 KV cache of
    `capacity` slots; on an NPU the convolution states and the cache are FP16, and the cache has
    two buffers, too. The head for drafts (`mtp`) has a cache of its own."""
    linear = text.layer_types.count("linear_attention")
    full = text.layer_types.count("full_attention") + mtp
    conv = text.conv_channels * (text.conv_kernel - 1)
    recurrent = text.linear_value_heads * text.linear_key_dim * text.linear_value_dim
    slots = full * 2 * text.num_kv_heads * capacity * text.head_dim
    conv_bytes = conv * (HALF_BYTES if on_npu else FLOAT_BYTES)
    return ChatMemory(
        weights=weights,
        states=2 * linear * (conv_bytes + recurrent * FLOAT_BYTES),
        kv_cache=slots * (2 * HALF_BYTES if on_npu else FLOAT_BYTES),
    )


def check_space(plan: ExportPlan, beside: int = 0, freed: int = 0) -> None:
    """Raise ExportError when the file system of `plan.out` lacks room for the plan, what lies
    `beside` it meanwhile, and 5 %.

    `freed` are bytes that are deleted on the way; some layers lie there before they are.
    """
    folder = next(parent for parent in plan.out.parents if parent.exists())
    free = shutil.disk_usage(folder).free
    least = plan.total // _LAYERS_BEFORE if freed else 0
    needed = int(max(plan.total + beside - freed, least) * _MARGIN)
    if free < needed:
        raise ExportError(
            f"the bundle needs {readable_size(needed)} beside {plan.out}, "
            f"{readable_size(free)} are free",
            Remedy.FREE_SPACE,
            missing=readable_size(needed - free),
        )
