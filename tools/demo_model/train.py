"""The training loop: AdamW with warm-up and cosine, checkpoints, a resume file and a log.

Knows batches and the model; knows nothing of what the conversations say.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3_5ForConditionalGeneration
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

from .batches import Batch, pool
from .checkpoint import save_checkpoint
from .model import new_model, special_id
from .pictures import COLOURS, FORMS
from .quantise import Quantiser

SAVE_EVERY_S = 45.0
PATCH_SHARE = 1.0
"""The patch embedding's learning rate, as a share of all others'."""
NAMING_SHARE = 0.5
"""Weight of naming what lies under each picture token, beside the answers' loss."""
DELTA_RULE = modeling.torch_chunk_gated_delta_rule
"""The same sum with any chunk size; short sequences are fastest with short chunks."""


@dataclass(frozen=True)
class Plan:
    """What decides the weights: the same plan gives the same training."""

    seed: int = 7
    steps: int = 4200
    budget: int = 3000
    """Tokens of a batch, padding included."""
    peak: float = 2.5e-3
    """Largest learning rate."""
    warm_up: int = 100
    """Steps."""
    grown_up: int = 4200
    """Steps over which conversations grow to full length."""
    falling_from: float = 0.6
    """Share of the steps after which the learning rate falls."""
    quantised_from: float = 0.9
    """Share of the steps after which the projections are read in int4 in two steps of three."""


def rate(plan: Plan, step: int) -> float:
    """Learning rate of a step: it rises in the warm-up, stays, and falls to zero in a line."""
    left = (plan.steps - step) / max(1.0, plan.steps * (1 - plan.falling_from))
    return plan.peak * min(1.0, (step + 1) / plan.warm_up, left)


def optimisers(
    model: nn.Module, patches: nn.Parameter, naming: nn.Module
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers and the patch embedding, AdamW for the rest.

    `patches` is the patch embedding as a matrix. On a plain ground its 1,536 inputs nearly agree:
    plain steps add up until patches drown out their positions, so what a filter does to a flat
    patch stays as it began (see `without_flat`).
    """
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            matrices.append(parameter)
        elif not name.endswith("patch_embed.proj.weight"):
            others.append(parameter)
    groups = [{"params": matrices, "share": 1.0}, {"params": [patches], "share": PATCH_SHARE}]
    return [
        torch.optim.Muon(groups, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([*others, *naming.parameters()], betas=(0.9, 0.98), weight_decay=0.0),
    ]


def without_flat(gradient: Tensor) -> Tensor:
    """The patch embedding's gradient `[N, 3, 2, 16, 16]` less its part on patches of one colour."""
    return gradient - gradient.mean((2, 3, 4), keepdim=True)


def half_is_faster() -> bool:
    """Whether this machine multiplies bfloat16 matrices faster than float32 ones."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(768, 768, dtype=dtype)
        matrix @ matrix
        started = time.perf_counter()
        for _ in range(5):
            matrix @ matrix
        seconds[dtype] = time.perf_counter() - started
    return seconds[torch.bfloat16] < 0.8 * seconds[torch.float32]


class Naming(nn.Module):
    """Two linear heads that name form and colour under a picture token; used in training only.

    Without them the vision tower learns colours in minutes but forms very late: nothing else
    tells it where to look.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.form = nn.Linear(width, 1 + len(FORMS))
        self.colour = nn.Linear(width, 1 + len(COLOURS))

    def forward(self, features: Tensor, batch: Batch) -> Tensor:
        """Loss of the names of all picture tokens; tokens without a shape count a tenth."""
        loss = features.new_zeros(())
        for head, names in ((self.form, batch.forms), (self.colour, batch.colours)):
            weight = torch.ones(head.out_features)
            weight[0] = 0.1
            loss = loss + functional.cross_entropy(
                head(features).float(), names, weight, ignore_index=-1
            )
        return loss


def loss_of(model: Qwen3_5ForConditionalGeneration, naming: Naming, batch: Batch) -> Tensor:
    """Mean cross entropy over the tokens to learn, and that of naming what the tower sees."""
    kinds = (batch.ids == special_id("<|image_pad|>")).int()
    out = model.model(
        input_ids=batch.ids,
        pixel_values=batch.pixels,
        image_grid_thw=batch.grids,
        mm_token_type_ids=kinds,
        use_cache=False,
    )
    targets = batch.labels[:, 1:]
    learnt = targets >= 0
    logits = model.lm_head(out.last_hidden_state[:, :-1][learnt])
    loss: Tensor = functional.cross_entropy(logits, targets[learnt])
    if batch.forms is None or not (batch.forms >= 0).any():
        return loss
    return loss + NAMING_SHARE * naming(torch.cat(out.image_outputs.pooler_output), batch)


class Trainer:
    """One training run in a work folder, which holds `resume.pt`, `log.jsonl` and `checkpoint/`."""

    def __init__(self, plan: Plan, tokenizer: Tokenizer, work: Path, threads: int = 2) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(plan.seed)
        self.plan, self.tokenizer, self.work = plan, tokenizer, work
        work.mkdir(parents=True, exist_ok=True)
        self.model = new_model().train()
        self.quantiser = Quantiser(self.model)
        self.half = half_is_faster()
        modeling.torch_chunk_gated_delta_rule = partial(DELTA_RULE, chunk_size=32)
        convolution = self.model.model.visual.patch_embed.proj.weight
        self.patches = nn.Parameter(convolution.data.flatten(1))
        self.naming = Naming(self.model.config.text_config.hidden_size)
        self.optimisers = optimisers(self.model, self.patches, self.naming)
        self.step, self.pools, self.seconds = 0, 0, 0.0
        if (work / "resume.pt").exists():
            self._resume()

    def _resume(self) -> None:
        state = torch.load(self.work / "resume.pt", weights_only=True)
        if state["plan"] != asdict(self.plan):
            file = self.work / "resume.pt"
            raise ValueError(
                f"{file} is of another plan ({state['plan']}): remove it to start anew."
            )
        self.model.load_state_dict(state["model"])
        self.naming.load_state_dict(state["naming"])
        for optimiser, values in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(values)
        self.step, self.pools, self.seconds = state["step"], state["pools"], state["seconds"]

    def _save(self) -> None:
        state = {
            "plan": asdict(self.plan),
            "model": self.model.state_dict(),
            "naming": self.naming.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": self.step,
            "pools": self.pools,
            "seconds": self.seconds,
        }
        torch.save(state, self.work / "resume.pt.new")
        (self.work / "resume.pt.new").replace(self.work / "resume.pt")
        save_checkpoint(self.model, self.tokenizer, self.work / "checkpoint")

    def run(self) -> None:
        """Train to the end; saves at the ends of pools, at most every two minutes."""
        saved = time.monotonic()
        while self.step < self.plan.steps:
            started = time.monotonic()
            for batch in pool(
                self.tokenizer,
                self.plan.seed,
                self.pools,
                min(1.0, self.step / self.plan.grown_up),
                self.plan.budget,
            ):
                if self.step < self.plan.steps:
                    self._learn(batch)
            self.pools += 1
            self.seconds += time.monotonic() - started
            if time.monotonic() - saved > SAVE_EVERY_S or self.step >= self.plan.steps:
                self._save()
                saved = time.monotonic()

    def _mode(self) -> str:
        """How this step reads the projections' weights."""
        if self.step < self.plan.quantised_from * self.plan.steps:
            return "float"
        return random.Random(f"{self.plan.seed}/{self.step}").choice(
            ("float", "int4", "int4-signed")
        )

    def _learn(self, batch: Batch) -> None:
        started = time.monotonic()
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate(self.plan, self.step) * group.get("share", 1.0)
        with self.quantiser.reading(self._mode()):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
                loss = loss_of(self.model, self.naming, batch)
            loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        seen = self.model.model.visual.patch_embed.proj.weight.grad
        self.patches.grad = None if seen is None else without_flat(seen).flatten(1)
        for optimiser in self.optimisers:
            optimiser.step()
        self.model.zero_grad(set_to_none=True)
        self.naming.zero_grad(set_to_none=True)
        if self.step % 10 == 0:
            self._log(loss.item(), norm.item(), batch, time.monotonic() - started)
        self.step += 1

    def _log(self, loss: float, norm: float, batch: Batch, seconds: float) -> None:
        entry = {
            "step": self.step,
            "loss": round(loss, 4),
            "norm": round(norm, 3),
            "rate": rate(self.plan, self.step),
            "shape": list(batch.ids.shape),
            "step_s": round(seconds, 2),
        }
        with (self.work / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        left = (self.plan.steps - self.step) * self.seconds / max(1, self.step) / 60
        print(
            f"step {self.step:5d} of {self.plan.steps}  loss {loss:.4f}  about {left:.0f} min left",
            flush=True,
        )
