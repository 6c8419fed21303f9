"""What the graphs of a bundle take of a chip: what their files have, and what others have published
of files that were converted. Knows sizes; loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from q35chat.bundle.bundle import Bundle
from q35chat.text import readable_size

_GROWTH = {"vision": 683 / 637, "prefill": 21 / 9.68, "decode": 11 / 9.68}
"""Converted bytes for each exported one, from the sizes in section 2 and 3 of the README of
examples/base_models/qwen3.5_4b in mindspore-ai/mindspore-lite at 2e8a3e30."""
_SOURCE = "published for Qwen3.5-4B with MindSpore Lite 2.9.0"
_IN_INT8 = ", which are FP16; nobody has published how weights in int8 grow"
_STATES_SHARE = 1.1  # graphs, and the states and buffers beside them


@dataclass(frozen=True, slots=True)
class GraphSize:
    """Bytes of a graph with its weights: of the converted files, or of the ONNX file. `in_gears` is
    a decode whose steps have several tokens; what was published of one has fixed shapes."""

    name: str
    size: int
    converted: bool
    in_gears: bool = False
    in_int8: bool = False

    @property
    def likely(self) -> int:
        """Bytes when it is converted; where it is not yet, as the published ones have grown, in
        gears as the prefill."""
        growth = _GROWTH.get("prefill" if self.in_gears else self.name, 1.0)
        return self.size if self.converted else int(self.size * growth)

    def text(self) -> str:
        """Both numbers and where the second is from; one where the file is there."""
        if self.converted:
            return f"{self.name} {readable_size(self.size)}"
        return (
            f"{self.name} {readable_size(self.size)} of weights, {readable_size(self.likely)} "
            f"if it grows as those {_SOURCE}{_IN_INT8 if self.in_int8 else ''}"
        )


def graph_sizes(bundle: Bundle) -> tuple[GraphSize, ...]:
    """The graphs in the order of the manifest."""
    return tuple(_size(bundle, name) for name in bundle.manifest.graphs)


def _size(bundle: Bundle, name: str) -> GraphSize:
    path = bundle.graph_path(name)
    beside = path.with_name(f"{path.stem.removesuffix('_graph')}_variables")
    converted = path.suffix == ".mindir"
    weights = beside.glob("*") if converted else path.parent.glob("model.bin")
    there = [file for file in (path, *weights) if file.is_file()]
    options, size = (
        bundle.manifest.options.get(name, {}),
        sum(file.stat().st_size for file in there),
    )
    in_gears = name == "decode" and "step_tokens" in options
    return GraphSize(name, size, converted, in_gears, options.get("precision") == "w8a8")


def needed(sizes: Sequence[GraphSize]) -> int:
    """Bytes of all graphs on the device, and something for states."""
    return int(sum(each.likely for each in sizes) * _STATES_SHARE)


def largest_needed(sizes: Sequence[GraphSize]) -> int:
    """Bytes of the largest graph alone, and something for states."""
    return int(max((each.likely for each in sizes), default=0) * _STATES_SHARE)


def estimate(sizes: Sequence[GraphSize]) -> Iterator[str]:
    """A line for each graph that is not converted yet, and one for all of them."""
    left = [each for each in sizes if not each.converted]
    yield from (each.text() for each in left)
    if left:
        yield (
            f"all at once take {readable_size(needed(sizes))} of a chip with their states, "
            f"one at a time {readable_size(largest_needed(sizes))}"
        )
