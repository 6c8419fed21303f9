"""An NPU as the runtime of a bundle: which graphs stay on the device, and what their converted
files do not tell of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from q35chat.ascend.decoder import DEFAULT_LONGEST, GearedDecoder
from q35chat.ascend.encoder import GearedEncoder
from q35chat.ascend.mindspore_lite import LiteSession
from q35chat.ascend.native_log import native_log
from q35chat.ascend.npu_smi import free_bytes
from q35chat.ascend.options import NpuOptions, log_path
from q35chat.ascend.ports import manifest_gears
from q35chat.ascend.residency import Residency, decided
from q35chat.bundle.bundle import Bundle
from q35chat.bundle.manifest import Manifest
from q35chat.engine.decoder import TextModel
from q35chat.engine.session import GraphSession
from q35chat.errors import RuntimeFailure
from q35chat.processes import program

_STATES_SHARE = 1.1  # graphs, and the states and buffers beside them


class NpuRuntime:
    """A `Runtime` of one converted bundle."""

    def __init__(self, bundle: Bundle, options: NpuOptions) -> None:
        self._manifest = bundle.manifest
        self._options = options
        free = free_bytes(options.device_id) if options.residency == "auto" else None
        self._residency = Residency(decided(options.residency, _needed(bundle), free))

    def open_graph(self, path: Path) -> GraphSession:
        """Load a graph file. Raises RuntimeFailure."""
        if path.suffix == ".onnx":
            raise RuntimeFailure(
                f"{path} is not converted for the NPU: run `{program()} convert` on its bundle"
            )
        kind, model = graph_kind(path), self._manifest.model
        options = self._manifest.options.get(kind, {})
        lengths, pictures = str(options.get("gears", "")), str(options.get("image_gears", ""))
        return LiteSession(
            path,
            kind,
            self._options,
            native_log(log_path()),
            residency=self._residency,
            gears=manifest_gears(kind, lengths, pictures, model.spatial_merge_size**2),
            metadata=_told(self._manifest) if kind == "prefill" else {},
        )

    def decoder(self, opened: Callable[[str], GraphSession], model: TextModel) -> GearedDecoder:
        """Over the graphs "decode" and "prefill"; nothing drafts here."""
        decode, prefill = opened("decode"), opened("prefill")  # a small device keeps the last one
        assert isinstance(decode, LiteSession)
        assert isinstance(prefill, LiteSession)
        return GearedDecoder(
            decode,
            prefill,
            image_token_id=model.image_token_id,
            longest=model.capacity or DEFAULT_LONGEST,
            vocab_size=model.vocab_size,
        )

    def encoder(self, session: GraphSession, merge_size: int, width: int | None) -> GearedEncoder:
        """Over the vision graph, with its gears."""
        return GearedEncoder(session, merge_size, width)


def graph_kind(path: Path) -> str:
    """Which of the three graphs a file of the 310P is, from its name or its folder's."""
    for name in (path.stem, path.parent.name):
        for kind in ("prefill", "decode", "vision"):
            if kind in name.lower():
                return kind
    raise RuntimeFailure(f"{path} is named neither after prefill, decode nor vision: rename it")


def _told(manifest: Manifest) -> Mapping[str, str]:
    """What q35chat knows of the prefill it exported, whatever the converted file tells."""
    options = manifest.options.get("prefill")
    if options is None:
        return {}
    told = {"q35chat.logits": "last"}
    if options.get("cache") == "fixed":
        told["q35chat.capacity"] = str(options.get("max_seq_len", ""))
    return told


def _needed(bundle: Bundle) -> int:
    """Bytes of the converted graphs with their weights, and something for states."""
    graphs = [bundle.graph_path(name) for name in bundle.manifest.graphs]
    folders = [path.with_name(f"{path.stem.removesuffix('_graph')}_variables") for path in graphs]
    weights = [file for folder in folders for file in folder.glob("*")]
    return int(sum(file.stat().st_size for file in (*graphs, *weights)) * _STATES_SHARE)
