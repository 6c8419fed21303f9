"""A Hugging Face checkpoint as named tensors, read in slices, never the whole model.

Callers use canonical names; the names found in files are mapped to them here. Must not know
quantisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from q35chat.errors import CheckpointError, Remedy
from q35chat.json_reader import read_json
from q35export.config import ModelConfig
from q35export.inventory import expected_tensors
from q35export.matrix import HEAD, MTP, TEXT, VISION, Float32, Shape
from q35export.safetensors_files import TensorEntry, read_header, read_rows, weight_files

# Prefixes that fine-tuning tools and older layouts write, longest first.
_PREFIXES = (
    ("model.language_model.lm_head.", "lm_head."),
    ("model.language_model.", TEXT),
    ("model.visual.", VISION),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.model.", TEXT),
    ("language_model.", TEXT),
    ("visual.", VISION),
    ("model.mtp.", MTP),
    ("model.", TEXT),
)
_PACKED = (".qweight", ".qzeros", ".weight_scale", ".weight_scale_inv", ".weight_packed")
_UNQUANTISED = "export needs the original bf16, fp16 or fp32 weights, such as Qwen/Qwen3.5-4B"


class Checkpoint:
    """The tensors of one checkpoint folder, always given as FP32."""

    def __init__(self, folder: Path, entries: dict[str, TensorEntry]) -> None:
        self.folder = folder
        self._entries = entries

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the headers of the weight files in `folder`; no weight is read.

        Raises CheckpointError for a missing, empty, half-downloaded, damaged or quantised
        checkpoint.
        """
        _refuse_quantised_config(folder)
        entries: dict[str, TensorEntry] = {}
        for path in weight_files(folder):
            for name, entry in read_header(path).items():
                entries[canonical_name(name)] = entry
        packed = next((name for name in entries if name.endswith(_PACKED)), None)
        if packed:
            raise CheckpointError(f"{folder} is a quantised checkpoint ({packed}); {_UNQUANTISED}")
        return cls(folder, entries)

    def expect(self, name: str, shape: Shape) -> None:
        """Raise CheckpointError unless the tensor is there with this shape, and readable."""
        entry = self._entry(name)
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
        """The whole tensor. Raises CheckpointError when it is missing or holds NaN or Inf."""
        entry = self._entry(name)
        return self._finite(name, read_rows(entry, 0, entry.shape[0] if entry.shape else 1))

    def rows(self, name: str, start: int, stop: int) -> Float32:
        """`tensor[start:stop]` along the first axis, `0 <= start <= stop <= shape[0]`.

        Only these rows are read. Raises CheckpointError as `read` does.
        """
        entry = self._entry(name)
        if not entry.shape or not 0 <= start <= stop <= entry.shape[0]:
            raise ValueError(f"rows {start}:{stop} of {name} {list(entry.shape)}")
        return self._finite(name, read_rows(entry, start, stop))

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
        known = expected_tensors(config, "text").keys() | expected_tensors(config, "vision").keys()
        unused = sorted(self._entries.keys() - known - {HEAD})
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
            raise CheckpointError(
                f"{self.folder} lacks the tensor {name} ({len(self._entries)} others are there); "
                "download the checkpoint again"
            )
        return entry

    def _finite(self, name: str, array: Float32) -> Float32:
        # The extremes are NaN if any value is: two passes, and no temporary of the array's size.
        if array.size and not np.isfinite([array.min(), array.max()]).all():
            raise CheckpointError(
                f"{self._entry(name).path.name}: {name} holds NaN or infinite weights; "
                "the checkpoint is damaged"
            )
        return array


def canonical_name(name: str) -> str:
    """The state-dict name of transformers' model for a name found in a file."""
    for prefix, canonical in _PREFIXES:
        if name.startswith(prefix):
            return canonical + name.removeprefix(prefix)
    return name


def _refuse_quantised_config(folder: Path) -> None:
    try:
        raw = read_json(folder / "config.json")
    except ValueError:
        return
    method = raw.get("quantization_config") if isinstance(raw, dict) else None
    if method:
        kind = method.get("quant_method", "unknown") if isinstance(method, dict) else method
        raise CheckpointError(f"{folder} is a quantised checkpoint ({kind}); {_UNQUANTISED}")
