"""A Hugging Face checkpoint as named tensors, read in slices, never the whole model.

Callers use canonical names; the names found in files are mapped to them here. Must not know
quantisation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import dropwhile, takewhile
from pathlib import Path

import numpy as np

from q35chat.errors import CheckpointError, Option, Remedy
from q35chat.json_reader import read_json
from q35export.config import ModelConfig
from q35export.experts_apart import ExpertsApart, take_apart
from q35export.inventory import expected_tensors
from q35export.matrix import EMBEDDING, HEAD, MTP, TEXT, VISION, Float32, Shape
from q35export.safetensors_files import (
    MERGE_FIRST,
    TensorEntry,
    read_gone,
    read_header,
    read_rows,
    weight_files,
)

# What wraps a model while it is trained, anywhere in a name; and the parts that its own names begin
# with, which some savers repeat, others leave out.
_WRAPPERS = {
    "_checkpoint_wrapped_module",
    "_fsdp_wrapped_module",
    "_orig_mod",
    "base_model",
    "module",
}
_ROOTS = {"language_model", "model"}
_PLACES = {
    "embed_tokens": TEXT,
    "layers": TEXT,
    "lm_head": "",
    "mtp": "",
    "norm": TEXT,
    "visual": "model.",
}
_ADAPTED = (".lora_", ".base_layer.", ".modules_to_save.")
_COMPARED = 1 << 22  # values at a time
_ALIKE = 2  # last parts of two names that are the same
_PACKED = (
    ".biases",
    ".qweight",
    ".qzeros",
    ".scales",
    ".weight_packed",
    ".weight_scale",
    ".weight_scale_inv",
)
_UNQUANTISED = "export needs the original bf16, fp16 or fp32 weights, such as Qwen/Qwen3.5-4B"


class Checkpoint:
    """The tensors of one checkpoint folder, always given as FP32."""

    def __init__(self, folder: Path, entries: dict[str, TensorEntry]) -> None:
        self.folder = folder
        self._pieces = entries
        self._entries = dict(entries)
        self._experts = take_apart(self._entries)

    @classmethod
    def open(cls, folder: Path, *, consumed: bool = False) -> Checkpoint:
        """Read the headers of the weight files in `folder`; no weight is read.

        With `consumed` files may be gone that an export has deleted. Raises CheckpointError for a
        missing, empty, half-downloaded, damaged or quantised checkpoint, and for one with an
        adapter that is not merged.
        """
        refuse_quantised(folder)
        gone = read_gone(folder).files
        if gone and not consumed:
            raise CheckpointError(
                f"{len(gone)} weight files of {folder} were deleted by an export that consumes them"
                f" ({Option.STREAM}): go on with it, or download the checkpoint again"
            )
        entries: dict[str, TensorEntry] = {}
        names: dict[str, str] = {}
        for path in weight_files(folder, gone):
            header = read_header(path) if path.is_file() else gone[path.name]
            for found, entry in header.items():
                name = canonical_name(found)
                if names.setdefault(name, found) != found:
                    raise CheckpointError(
                        f"{folder} has the tensor {name} twice, as {names[name]} and as {found}: "
                        "save it again with transformers"
                    )
                entries[name] = entry
        packed = next((name for name in entries if name.endswith(_PACKED)), None)
        if packed:
            raise CheckpointError(f"{folder} is a quantised checkpoint ({packed}); {_UNQUANTISED}")
        adapted = next((name for name in entries if any(part in name for part in _ADAPTED)), None)
        if adapted:
            raise CheckpointError(f"{folder} holds a LoRA adapter ({adapted}): {MERGE_FIRST}")
        return cls(folder, entries)

    def pieces(self) -> Mapping[str, TensorEntry]:
        """Every tensor as it is stored, by canonical name; experts that lie apart, apart."""
        return self._pieces

    def fit(self, config: ModelConfig) -> tuple[ModelConfig, tuple[str, ...]]:
        """The model that these tensors are, where `config` says otherwise, with one-line remarks.

        Without a tower the model sees no pictures. A head is used where it differs from the
        embedding to which it should be tied, and stands for an embedding that is missing, both as
        in transformers 5. Raises CheckpointError for a head that is neither there nor tied.
        """
        remarks = []
        text, tower = config.text, config.vision is not None
        if tower and not any(name.startswith(VISION) for name in self._entries):
            wanted = expected_tensors(config, "vision")
            if not any(self._alike(name) for name in wanted):
                config = config.without_tower()
                remarks.append("there is no vision tower: the model will see no pictures")
        if text.tied and HEAD in self._entries:
            head = self._entries[HEAD]
            if not _are_equal(self._entries.setdefault(EMBEDDING, head), head):
                config = replace(config, text=replace(text, tied=False))
                remarks.append(
                    f"{HEAD} differs from the embedding, although config.json has "
                    "tie_word_embeddings true: it is used, as transformers does"
                )
        elif not text.tied and HEAD not in self._entries:
            raise CheckpointError(
                f"config.json has tie_word_embeddings false, and {self.folder} has no {HEAD}: "
                "set it to true if the embedding is the head, else take the original checkpoint"
            )
        return config, tuple(remarks)

    def expect(self, name: str, shape: Shape) -> None:
        """Raise CheckpointError unless the tensor is there with this shape, and readable."""
        entry = self._experts.get(name) or self._entry(name)
        if entry.shape != shape:
            raise CheckpointError(
                f"{entry.path.name}: {name} has shape {list(entry.shape)}, config.json says "
                f"{list(shape)}: weights and config.json are of different models"
            )
        if not entry.readable:
            raise CheckpointError(
                f"{entry.path.name}: {name} is stored as {entry.dtype}; {_UNQUANTISED}"
            )

    def read(self, name: str) -> Float32:
        """Return the whole tensor, FP32. Raises CheckpointError when it is missing or holds NaN or
        Inf."""
        entry = self._experts.get(name) or self._entry(name)
        return self._read(name, entry, 0, entry.shape[0] if entry.shape else 1)

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """`tensor[start:stop]` along the first axis, `0 <= start <= stop <= shape[0]`.

        Only these rows are read. Raises CheckpointError as `read` does.
        """
        entry = self._experts.get(name) or self._entry(name)
        if not entry.shape or not 0 <= start <= stop <= entry.shape[0]:
            raise ValueError(f"rows {start}:{stop} of {name} {list(entry.shape)}")
        return self._read(name, entry, start, stop)

    def check(self, config: ModelConfig, components: Iterable[str]) -> tuple[str, ...]:
        """Compare names, shapes and element types with what `config` says; read no weight.

        Returns one-line remarks for the user: what of the checkpoint is not used. Raises
        CheckpointError for the first tensor of `components` ("mtp" among them where the head for
        drafts is wanted) that is missing or wrong.
        """
        components = tuple(components)
        if "mtp" in components:
            self._check_head(config)
        for component in components:
            for name, shape in expected_tensors(config, component).items():
                self.expect(name, shape)
        return self._remarks(config, with_mtp="mtp" in components)

    def _check_head(self, config: ModelConfig) -> None:
        """Refuse a checkpoint without a head for drafts, or with one of another kind."""
        text = config.text
        if text.mtp_layers == 0 or not any(name.startswith(MTP) for name in self._entries):
            raise CheckpointError(
                f"{self.folder} has no head for drafts (mtp_num_hidden_layers is "
                f"{text.mtp_layers}, {sum(name.startswith(MTP) for name in self._entries)} mtp.* "
                "tensors are there; fine-tuning often drops them):",
                Remedy.WITHOUT_HEAD,
            )
        if text.mtp_layers > 1 or text.mtp_own_embeddings:
            raise CheckpointError(
                f"{self.folder} has a head for drafts of {text.mtp_layers} layers"
                f"{' with its own embeddings' if text.mtp_own_embeddings else ''}; only one layer "
                "over the model's embeddings is supported:",
                Remedy.WITHOUT_HEAD,
            )

    def _remarks(self, config: ModelConfig, *, with_mtp: bool) -> tuple[str, ...]:
        known = expected_tensors(config, "text").keys() | {HEAD}
        if config.vision is not None:
            known |= expected_tensors(config, "vision").keys()
        unused = sorted((self._entries.keys() | self._experts.keys()) - known)
        mtp = [name for name in unused if name.startswith(MTP)]
        other = [name for name in unused if not name.startswith(MTP)]
        remarks = []
        if mtp and not with_mtp:
            remarks.append(
                f"ignored {len(mtp)} multi-token-prediction (mtp.*) tensors; "
                + Remedy.WITH_HEAD.words()
            )
        if other:
            remarks.append(f"ignored {len(other)} tensors the model does not have: {other[0]}, …")
        return tuple(remarks)

    def _entry(self, name: str) -> TensorEntry:
        entry = self._entries.get(name)
        if entry is None:
            what = f"{self.folder} lacks the tensor {name}"
            if found := self._alike(name):
                raise CheckpointError(
                    f"{what} and has {found}, a name of another program: "
                    "save it with transformers, or take the original checkpoint"
                )
            raise CheckpointError(
                f"{what} ({len(self._entries)} others are there, such as "
                f"{next(iter(self._entries), 'none')}): take the original checkpoint"
            )
        return entry

    @cached_property
    def _strange(self) -> tuple[str, ...]:
        """The names that are no tensor's of transformers' model."""
        known = (TEXT, VISION, MTP, HEAD)
        return tuple(sorted(name for name in self._entries if not name.startswith(known)))

    def _alike(self, name: str) -> str:
        """The strange name that ends most like `name`; empty where none does."""

        def shared(other: str) -> int:
            pairs = zip(reversed(name.split(".")), reversed(other.split(".")), strict=False)
            return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

        found = max(self._strange, key=shared, default="")
        return found if found and shared(found) > _ALIKE else ""

    def _read(self, name: str, entry: TensorEntry | ExpertsApart, start: int, stop: int) -> Float32:
        if isinstance(entry, ExpertsApart):
            array = entry.rows(start, stop)
        else:
            array = read_rows(entry, start, stop)
        # The extremes are NaN if any value is: two passes, and no temporary of the array's size.
        if array.size and not np.isfinite([array.min(), array.max()]).all():
            raise CheckpointError(
                f"{entry.path.name}: {name} holds NaN or infinite weights; "
                "the checkpoint is damaged"
            )
        return array


def canonical_name(name: str) -> str:
    """The state-dict name of transformers' model for a name found in a file."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    own = list(dropwhile(lambda part: part in _ROOTS, parts))
    place = _PLACES.get(own[0]) if own else None
    return name if place is None else place + ".".join(own)


def refuse_quantised(folder: Path) -> None:
    """Raise CheckpointError where `config.json` says that the weights are quantised."""
    try:
        raw = read_json(folder / "config.json")
    except ValueError:
        return
    if not isinstance(raw, dict):
        return
    method = raw.get("quantization_config") or raw.get("quantization")
    if method:
        other = "MLX" if "quantization" in raw else "unknown"
        kind = method.get("quant_method", other) if isinstance(method, dict) else method
        raise CheckpointError(f"{folder} is a quantised checkpoint ({kind}); {_UNQUANTISED}")


def _are_equal(one: TensorEntry, other: TensorEntry) -> bool:
    """Whether two tensors hold the same numbers; read piece by piece up to the first other one."""
    if one.shape != other.shape or not one.shape or not (one.readable and other.readable):
        return one is other
    step = max(1, _COMPARED // max(1, math.prod(one.shape[1:])))
    return one is other or all(
        np.array_equal(read_rows(one, start, stop), read_rows(other, start, stop))
        for start in range(0, one.shape[0], step)
        for stop in (min(start + step, one.shape[0]),)
    )
