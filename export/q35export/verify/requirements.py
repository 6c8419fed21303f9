"""What a comparison needs, before anything is loaded: memory, and slots for its prompts.

Refuses by shapes and sizes alone; runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import psutil

from q35chat.bundle.bundle import Bundle
from q35chat.errors import BundleError, Q35Error, Remedy
from q35chat.processes import program
from q35export.config import ModelConfig
from q35export.inventory import expected_tensors
from q35export.request import COMPONENTS
from q35export.verify.reference import EncodedPrompt
from q35export.verify.samples import Sample

Note = Callable[[str], None]
Prompts = list[tuple[Sample, EncodedPrompt]]
_VISION = "vision"
_FLOAT_BYTES = 4
_DECODERS = ("text", "decode")


class NotComparableError(Q35Error):
    """A sound bundle that cannot be compared here, or with these samples: too little memory, or too
    few slots."""


def check_graphs(bundle: Bundle) -> None:
    """Raise BundleError unless every component is there as an ONNX graph."""
    for name in _components(bundle):
        if name not in bundle.manifest.graphs:
            raise BundleError(
                f"{bundle.path} has no {name} graph to compare: export all components"
            )
        if bundle.graph_path(name).suffix != ".onnx":
            raise BundleError(
                f"{bundle.path} is converted for its NPU, and only ONNX graphs can be compared: "
                f"export again, and compare before {program()} convert"
            )


def check_sight(bundle: Bundle, config: ModelConfig, model: Path) -> None:
    """Raise NotComparableError where bundle or checkpoint sees pictures and the other does not."""
    if sees(bundle) != (config.vision is not None):
        blind, other = (model, bundle.path) if sees(bundle) else (bundle.path, model)
        raise NotComparableError(
            f"{other} sees pictures and {blind} does not: compare with the checkpoint that the "
            "bundle was made from"
        )


def check_memory(bundle: Bundle, config: ModelConfig, *, opened: int) -> None:
    """Refuse before the machine starts to swap or kills us, with NotComparableError.

    Needed are: the checkpoint in FP32, 4 bytes a value; the bundle's graphs, once as they are
    mapped and once more for each of the `opened` copies that the runtime packs at a time; and
    the largest matrix in FP32, while it is read back or compared.
    """
    shapes = [
        shape
        for component in COMPONENTS["cpu"]
        if component != _VISION or config.vision is not None
        for shape in expected_tensors(config, component).values()
    ]
    values = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
    reference, largest = sum(values) * _FLOAT_BYTES, max(values) * _FLOAT_BYTES
    graphs = (1 + opened) * _weight_bytes(bundle)
    needed, free = reference + graphs + largest, psutil.virtual_memory().available
    if needed > free:
        raise NotComparableError(
            f"comparing needs {needed / 1e9:.1f} GB of memory ({reference / 1e9:.1f} GB for the "
            f"checkpoint in FP32, {graphs / 1e9:.1f} GB for the bundle), {free / 1e9:.1f} GB are "
            "free:",
            Remedy.NO_COMPARISON,
        )


def fitting(
    prompts: Iterable[tuple[Sample, EncodedPrompt]], bundle: Bundle, tokens: int, note: Note
) -> Prompts:
    """The prompts that fit the bundle's capacity with `tokens` choices after each; `note` is told
    of the others. Raises NotComparableError where none fits."""
    capacity = slots_of(bundle)
    taken: Prompts = []
    needs = []
    for sample, prompt in prompts:
        needed = len(prompt.ids) + tokens - 1  # the last choice is never read
        needs.append(needed)
        if capacity is None or needed <= capacity:
            taken.append((sample, prompt))
        else:
            note(f"sample left out: {sample.name} needs {needed} slots, the bundle has {capacity}")
    if not taken:
        raise NotComparableError(
            f"no sample fits the {capacity} slots of {bundle.path}: the shortest needs "
            f"{min(needs)}",
            Remedy.LARGER_CAPACITY_TO_COMPARE,
            slots=min(needs),
        )
    return taken


def slots_of(bundle: Bundle) -> int | None:
    """KV slots, by the decoder's own graph; None for a cache that grows."""
    name = next(name for name in _DECODERS if name in bundle.manifest.graphs)
    inputs = ir.load(bundle.graph_path(name)).graph.inputs
    mask = next(value for value in inputs if value.name == "attention_mask")
    assert mask.shape is not None
    width = mask.shape[-1]
    return width if isinstance(width, int) else None


def sees(bundle: Bundle) -> bool:
    """Whether the model of the bundle sees pictures."""
    return bundle.manifest.model.image_token_id is not None


def _components(bundle: Bundle) -> tuple[str, ...]:
    names = COMPONENTS.get(bundle.manifest.target, COMPONENTS["cpu"])
    return tuple(name for name in names if name != _VISION or sees(bundle))


def _weight_bytes(bundle: Bundle) -> int:
    """Size of the files of the graphs that are compared, nearly all of it weights."""
    folders = tuple(f"{name}/" for name in _components(bundle))
    files = bundle.manifest.files.items()
    return sum(entry.size for name, entry in files if name.startswith(folders))
