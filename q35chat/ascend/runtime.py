"""An NPU as the runtime of a bundle: which graphs stay on the device, what their converted files do
not tell of themselves, and pictures padded to the gears of a vision graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from q35chat.ascend.decoder import DEFAULT_LONGEST, GearedDecoder
from q35chat.ascend.memory import graph_sizes, needed
from q35chat.ascend.mindspore_lite import LiteSession
from q35chat.ascend.native_log import native_log
from q35chat.ascend.npu_smi import free_bytes
from q35chat.ascend.options import NpuOptions, log_path
from q35chat.ascend.ports import manifest_gears
from q35chat.ascend.prefill import ROWS, TOLD
from q35chat.ascend.residency import Residency, decided
from q35chat.bundle.bundle import Bundle
from q35chat.bundle.manifest import Manifest, OptionValue
from q35chat.engine.decoder import TextModel
from q35chat.engine.encoder import PIXELS, NoGeometryError, VisionEncoder
from q35chat.engine.session import Array, GraphSession
from q35chat.errors import PictureError, Remedy, RuntimeFailure
from q35chat.processes import program

_MASK = "patch_mask"
_MOST_STEP_TOKENS = 8


class NpuRuntime:
    """A `Runtime` of one converted bundle."""

    def __init__(self, bundle: Bundle, options: NpuOptions) -> None:
        self._manifest = bundle.manifest
        self._options = options
        free = free_bytes(options.device_id) if options.residency == "auto" else None
        can, size = prefill_decodes(bundle.manifest), needed(graph_sizes(bundle))
        mode = decided(options.residency, size, free, one=can)
        if mode == "one" and not can:
            raise RuntimeFailure(f"{bundle.path} has no prefill that decodes:", Remedy.ONE_GRAPH)
        self._residency, self._one = Residency(mode), mode == "one"

    def open_graph(self, path: Path) -> GraphSession:
        """Load a graph file. Raises RuntimeFailure."""
        if path.suffix == ".onnx":
            raise RuntimeFailure(
                f"{path} is not converted for the NPU: run `{program()} convert` on its bundle"
            )
        kind, model = graph_kind(path), self._manifest.model
        options = self._manifest.options.get(kind, {})
        lengths, pictures = _lengths(options, kind), str(options.get("image_gears", ""))
        return LiteSession(
            path,
            kind,
            self._options,
            native_log(log_path()),
            residency=self._residency,
            gears=manifest_gears(kind, lengths, pictures, model.spatial_merge_size**2),
            metadata=_told(self._manifest, kind),
        )

    def decoder(self, opened: Callable[[str], GraphSession], model: TextModel) -> GearedDecoder:
        """Over the graphs "decode" and "prefill", or the latter alone; nothing drafts here."""
        decode = None if self._one else opened("decode")
        prefill = opened("prefill")  # a small device keeps the last one
        assert decode is None or isinstance(decode, LiteSession)
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


def prefill_decodes(manifest: Manifest) -> bool:
    """Whether the prefill takes a single token and goes on from any state."""
    options = manifest.options.get("prefill", {})
    goes_on = options.get("states") == "taken" and options.get("cache") == "fixed"
    fresh = "fresh-prefill" in str(options.get("kernels", ""))
    return goes_on and not fresh and "1" in str(options.get("gears", "")).split(",")


def _lengths(options: Mapping[str, OptionValue], kind: str) -> str:
    """The lengths that a graph was exported for, separated by commas."""
    if kind == "decode" and (most := _step_tokens(options)) > 1:
        return ",".join(map(str, range(1, most + 1)))
    return str(options.get("gears", ""))


def _step_tokens(options: Mapping[str, OptionValue]) -> int:
    """How many tokens a step of a graph may have, as far as its manifest tells what can be."""
    most = options.get("step_tokens", 1)
    return most if isinstance(most, int) and 1 <= most <= _MOST_STEP_TOKENS else 1


def _told(manifest: Manifest, kind: str) -> Mapping[str, str]:
    """What q35chat knows of the graph it exported, whatever the converted file tells."""
    options = manifest.options.get(kind)
    if options is None or kind == "vision":
        return {}
    told = {TOLD: str(options.get("kernels", ""))}
    if kind == "decode":
        return told
    told["q35chat.logits"] = "last"
    if (rows := _step_tokens(options)) > 1:
        told[ROWS] = str(rows)
    if options.get("cache") == "fixed":
        told["q35chat.capacity"] = str(options.get("max_seq_len", ""))
    return told


class GearedEncoder(VisionEncoder):
    """A vision graph that accepts only certain numbers of patches.

    Such a graph has a `patch_mask` [1, P], which is filled here: ones, then zeros. One that is
    told no geometry has that of one square built in. `width` is used where the graph does not tell
    its own. Raises BundleError for another graph, NoGeometryError for one that only its maker
    could feed.
    """

    def __init__(self, session: GraphSession, merge_size: int, width: int | None = None) -> None:
        super().__init__(session, merge_size, width)
        self._gears = _gears(session)
        if len(self._inputs) == 1:
            self.square_side = self._built_in_side(merge_size)
            self.max_rows = self.square_side**2 // self._merged
        elif self._gears:
            self.max_rows = max(self._gears) // self._merged

    def encode(self, arrays: Mapping[str, Array]) -> Array:
        """Run once over `arrays` [P, ...], padded; [P / merge_size², H] float32, a copy.

        Raises ValueError when an input is missing, PictureError for more patches than the largest
        gear.
        """
        count = patches = len(arrays[PIXELS])
        if self._gears:
            fitting = [gear for gear in self._gears if gear >= count]
            if not fitting:
                raise PictureError(
                    f"the picture takes {count // self._merged} tokens, the vision graph at most "
                    f"{self.max_rows}:",
                    Remedy.SMALLER_PICTURES,
                )
            patches = min(fitting)
        padded = {
            name: _padded(array, patches) for name, array in arrays.items() if name in self._inputs
        }
        padded[_MASK] = (np.arange(patches) < count)[None]
        return super().encode(padded)[: count // self._merged]

    def _built_in_side(self, merge_size: int) -> int:
        """A square is all that a number of patches can tell."""
        patches = self._inputs[PIXELS].shape[0]
        if patches is None:
            raise NoGeometryError(
                "its vision graph takes any number of patches but not where they lie in a picture"
            )
        side = math.isqrt(patches)
        if side**2 != patches or side % merge_size:
            raise NoGeometryError(
                f"its vision graph takes {patches} patches, which are no square of "
                f"{merge_size} x {merge_size} blocks, and does not take where they lie"
            )
        return side


def _gears(session: GraphSession) -> tuple[int, ...]:
    """Numbers of patches that are accepted, from the session's metadata; none: any number."""
    text = session.metadata.get("q35chat.gear_shapes", "")
    entries = [
        dict(part.split("=") for part in gear.split(",")) for gear in text.split(";") if gear
    ]
    return tuple(int(entry[f"{PIXELS}:0"]) for entry in entries if f"{PIXELS}:0" in entry)


def _padded(array: Array, rows: int) -> Array:
    """`array` [P, ...] with zeros behind it, [rows, ...]."""
    if len(array) == rows:
        return array
    whole = np.zeros((rows, *array.shape[1:]), array.dtype)
    whole[: len(array)] = array
    return whole
