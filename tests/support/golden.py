"""Golden files: what transformers answered for the small checkpoints, kept for tests without torch.

One `.json` a shape with everything that is compared exactly, and one `.npz` with the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from q35export.verify.samples import Drawing, Sample

FOLDER = Path(__file__).resolve().parents[1] / "golden"
TOKENS = 64
SAMPLES = (
    Sample("text", "Hello, name the red picture."),
    Sample("long text", "The user and the assistant 图片。" * 8 + " Say it in one sentence 😀!"),
    Sample("one picture", "What is in the picture?", (Drawing(200, 130, 1),)),
    Sample(
        "three pictures",
        "What differs?",
        (Drawing(300, 64, 2), Drawing(90, 240, 3), Drawing(128, 128, 4)),
    ),
)
ROWS = (0, 1, -1)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """One sample: token ids of the prompt, grids (height, width) in patches, greedy tokens."""

    sample: str
    prompt_ids: tuple[int, ...]
    grids: tuple[tuple[int, int], ...]
    positions: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    least_margin: float


@dataclass(frozen=True, slots=True)
class Golden:
    """A shape's golden file. `numbers` holds, by sample: `logits` [2, V] of the first and last
    token, `norms k` [M] and `rows k` [len(ROWS), H] of its k-th picture's embeddings."""

    shape: str
    seed: int
    cases: tuple[GoldenCase, ...]
    numbers: Mapping[str, Floats]

    def case(self, sample: str) -> GoldenCase:
        """The case of a sample."""
        return next(case for case in self.cases if case.sample == sample)


def load(shape: str) -> Golden:
    """Read the golden files of a shape."""
    data = json.loads((FOLDER / f"{shape}.json").read_text(encoding="utf-8"))
    with np.load(FOLDER / f"{shape}.npz") as file:
        numbers = {name: file[name] for name in file.files}
    cases = tuple(GoldenCase(**_tuples(case)) for case in data["cases"])
    return Golden(data["shape"], data["seed"], cases, numbers)


def save(golden: Golden) -> None:
    """Write the golden files of a shape."""
    FOLDER.mkdir(exist_ok=True)
    cases = [json.dumps(asdict(case), ensure_ascii=False) for case in golden.cases]
    text = f'{{"shape": "{golden.shape}", "seed": {golden.seed}, "cases": [\n'
    text += ",\n".join(cases) + "\n]}\n"
    (FOLDER / f"{golden.shape}.json").write_text(text, encoding="utf-8")
    arrays: dict[str, Any] = dict(golden.numbers)
    np.savez_compressed(FOLDER / f"{golden.shape}.npz", **arrays)


def embedding_numbers(sample: str, number: int, embeds: Floats) -> dict[str, Floats]:
    """What is kept of one picture's embeddings [M, H]."""
    return {
        f"{sample} rows {number}": embeds[list(ROWS)],
        f"{sample} norms {number}": np.linalg.norm(embeds, axis=1).astype(np.float32),
    }


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value
