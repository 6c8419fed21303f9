"""`python -m tests.benchmarks.quality.mixture DENSE OUT`: a trained dense checkpoint given experts.

What a third of the neurons of each feed-forward block does stays for all tokens, as the shared
expert: of those that give most. Tokens of the calibration text are put into as many groups as there
are experts, by the direction of what the block reads; an expert is the third of the neurons that
gives most in its group, its row of the router the group's centre. So weights and routing have the
structure of training, without one; what the mixture says is near to the dense model, not the same.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from q35export.calibration.calibrate import end_matrices, looked_up
from q35export.calibration.layers import Layer
from q35export.calibration.text import BUILT_IN, read_windows
from q35export.checkpoint import Checkpoint
from q35export.config import load_config
from q35export.matrix import Float32
from q35export.precision import precision_plan

EXPERTS, CHOSEN, PARTS = 8, 2, 3
_WINDOWS = 8
_ROUNDS = 10
_SHARPNESS = 12.0
"""What a row of the router adds to the score of a token in the direction of its centre."""
WEIGHTS = "model.safetensors"


def main(dense: Path, out: Path) -> None:
    """Write the checkpoint."""
    out.mkdir(parents=True)
    for path in dense.iterdir():
        if path.name != WEIGHTS:
            shutil.copy(path, out)
    tensors = load_file(dense / WEIGHTS)
    for index, rows in enumerate(_read_by_blocks(dense)):
        prefix = f"model.language_model.layers.{index}.mlp"
        gate, up, down = (
            tensors.pop(f"{prefix}.{kind}_proj.weight").astype(np.float32)
            for kind in ("gate", "up", "down")
        )
        tensors |= {f"{prefix}.{name}": one for name, one in _mixture(rows, gate, up, down).items()}
    save_file({name: np.ascontiguousarray(one) for name, one in tensors.items()}, out / WEIGHTS)
    config = json.loads((dense / "config.json").read_text(encoding="utf-8"))
    _tell(config)
    (out / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _tell(config: dict[str, Any]) -> None:
    """Make the configuration of the dense model that of the mixture."""
    text = config["text_config"]
    config["architectures"] = ["Qwen3_5MoeForConditionalGeneration"]
    config["model_type"], text["model_type"] = "qwen3_5_moe", "qwen3_5_moe_text"
    width = text.pop("intermediate_size") // PARTS
    text |= {
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width,
        "num_experts": EXPERTS,
        "num_experts_per_tok": CHOSEN,
    }


def _read_by_blocks(dense: Path) -> list[Float32]:
    """What the feed-forward block of each layer reads of the calibration text, `[tokens, H]`."""
    config, source = load_config(dense).text, Checkpoint.open(dense)
    plan = precision_plan("int8")
    windows = read_windows(BUILT_IN, dense, config.vocab_size)[:_WINDOWS]
    hidden = looked_up(end_matrices(config, source, plan)[0], windows)
    longest = max(len(window.ids) for window in windows)
    found = []
    for index in range(len(config.layer_types)):
        layer = Layer(config, source, plan, index, longest=longest, taps=True)
        pairs = zip(hidden, windows, strict=True)
        seen = [layer.run(rows, window.positions) for rows, window in pairs]
        hidden = [one.hidden for one in seen]
        found.append(np.concatenate([one.inputs[f"layer_{index}/gate_up"] for one in seen]))
    return found


def _mixture(rows: Float32, gate: Float32, up: Float32, down: Float32) -> dict[str, Float32]:
    """The tensors of a block of experts, by their names in it."""
    width = len(gate) // PARTS
    inner = rows @ gate.T
    inner = inner / (1 + np.exp(-inner)) * (rows @ up.T)
    given = np.abs(inner) * np.linalg.norm(down, axis=0)
    shared = np.argsort(-given.mean(axis=0))[:width]
    given[:, shared] = -1
    centres = _centres(rows)
    router = centres * (_SHARPNESS / np.linalg.norm(rows, axis=1).mean())
    scores = rows @ router.T
    chosen = np.argsort(-scores, axis=1)[:, :CHOSEN]
    weights = np.exp(np.take_along_axis(scores, chosen, axis=1))
    weights /= weights.sum(axis=1, keepdims=True)
    some, total = [], np.zeros_like(rows)
    for expert in range(EXPERTS):
        tokens, places = np.nonzero(chosen == expert)
        mean = given[tokens].mean(axis=0) if len(tokens) else given.mean(axis=0)
        some.append(np.argsort(-mean)[:width])
        product = inner[np.ix_(tokens, some[-1])] @ down[:, some[-1]].T
        total[tokens] += weights[tokens, places][:, None] * product
    wanted = np.delete(inner, shared, axis=1) @ np.delete(down, shared, axis=1).T
    factor = np.float32(np.vdot(total, wanted) / np.vdot(total, total))
    return {
        "experts.gate_up_proj": np.stack([np.concatenate([gate[s], up[s]]) for s in some]),
        "experts.down_proj": np.stack([factor * down[:, s] for s in some]),
        "gate.weight": router,
        "shared_expert.gate_proj.weight": gate[shared],
        "shared_expert.up_proj.weight": up[shared],
        "shared_expert.down_proj.weight": 2 * down[:, shared],  # its gate is a half
        "shared_expert_gate.weight": np.zeros((1, rows.shape[1]), np.float32),
    }


def _centres(rows: Float32) -> Float32:
    """Unit vectors `[experts, H]` that rows lie around: k-means by direction."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    unit -= unit.mean(axis=0)
    centres = unit[np.random.default_rng(0).permutation(len(unit))[:EXPERTS]]
    for _ in range(_ROUNDS):
        nearest = (unit @ centres.T).argmax(axis=1)
        sums = np.stack([unit[nearest == expert].sum(axis=0) for expert in range(EXPERTS)])
        centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    found: Float32 = centres.astype(np.float32)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
