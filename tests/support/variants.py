"""Checkpoints changed into what people really have: files and tensors added, taken out, renamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

WEIGHTS = "model.safetensors"
TEXT, VISION = "model.language_model.", "model.visual."


def change(path: Path, **fields: Any) -> None:
    """Put fields into a JSON file, which is made where it is not there; ... takes one out."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found |= fields
    kept = {name: value for name, value in found.items() if value is not ...}
    path.write_text(json.dumps(kept), encoding="utf-8")


def change_tensors(folder: Path, **tensors: npt.NDArray[Any] | None) -> None:
    """Replace or add tensors; None takes one out."""
    found = load_file(folder / WEIGHTS) | tensors
    save_file({n: array for n, array in found.items() if array is not None}, folder / WEIGHTS)


def rename_tensors(folder: Path, named: Callable[[str], str]) -> None:
    """Save every tensor under another name; the empty name takes it out."""
    found = {named(name): array for name, array in load_file(folder / WEIGHTS).items()}
    found.pop("", None)
    save_file({name: np.ascontiguousarray(found[name]) for name in found}, folder / WEIGHTS)


def without_tower(folder: Path) -> None:
    """The tensors of the decoder alone; `config.json` still speaks of a tower."""
    rename_tensors(folder, lambda name: "" if name.startswith(VISION) else name)
    (folder / "preprocessor_config.json").unlink()


def null_vision(folder: Path) -> None:
    """The decoder alone, and `config.json` says so."""
    without_tower(folder)
    change(folder / "config.json", vision_config=None)


def text_model(folder: Path) -> None:
    """What transformers saves of the decoder alone: model type `qwen3_5_text`."""
    without_tower(folder)
    rename_tensors(folder, lambda name: name.replace(TEXT, "model."))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = config["text_config"] | {"architectures": ["Qwen3_5ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(text), encoding="utf-8")


TEXT_ONLY: dict[str, Callable[[Path], None]] = {
    "qwen3_5_text": text_model,
    "without-tower": without_tower,
    "null-vision": null_vision,
}


def add_tokens(folder: Path, count: int, *, special: bool = False) -> None:
    """Let the tokenizer have `count` tokens more: `<new0>` and so on, with the ids that follow."""
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    first = 1 + max(token["id"] for token in document["added_tokens"])
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document["added_tokens"] += [
        {"id": first + number, "content": f"<new{number}>", "special": special, **plain}
        for number in range(count)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
