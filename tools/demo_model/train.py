"""The training loop: a plan of rates, checkpoints, a resume file and a log.

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
from .dialogues import FIRST_ROUND, SECOND_ROUND
from .model import new_model, special_id
from .naming import Naming, learn_to_see
from .optimise import optimisers, step_all
from .quantise import Quantiser

SAVE_EVERY_S = 60.0
NAMING_SHARE = 0.5
"""Weight of naming what lies under each picture token, beside the answers' loss."""
DELTA_RULE = modeling.torch_chunk_gated_delta_rule
"""The same sum with any chunk size; short sequences are fastest with short chunks."""


@dataclass(frozen=True)
class Plan:
    """What decides the weights: the same plan gives the same training."""

    seed: int = 7
    seeing: int = 1400
    """Steps of the vision tower alone (see `naming`)."""
    first_round: int = 4000
    """Steps of the language training's first round, from short lessons to long conversations."""
    second_round: int = 3300
    """Steps of the second, on more of what is learnt late."""
    budget: int = 3000
    """Tokens of a batch, padding included."""
    peak: float = 2.5e-3
    """Largest learning rate."""
    warm_up: int = 100
    """Steps of a round."""
    grown_up: int = 3000
    """Steps over which conversations grow to full length."""
    falling_from: float = 0.64
    """Share of a round's steps after which the learning rate falls."""
    quantised_from: float = 0.8
    """Share of a round's steps after which the projections are read in int4 two times in three."""

    @property
    def steps(self) -> int:
        """Steps of both rounds."""
        return self.first_round + self.second_round

    def round_of(self, step: int) -> tuple[int, int]:
        """The first step of the round that `step` belongs to, and the round's length."""
        if step < self.first_round:
            return 0, self.first_round
        return self.first_round, self.second_round

    def done(self, step: int) -> float:
        """The share of its round that lies before `step`."""
        start, length = self.round_of(step)
        return (step - start) / length


def rate(plan: Plan, step: int) -> float:
    """Learning rate of a step: in a round it rises, stays, and falls to zero in a line."""
    start, _ = plan.round_of(step)
    left = (1 - plan.done(step)) / (1 - plan.falling_from)
    return plan.peak * min(1.0, (step - start + 1) / plan.warm_up, left)


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
    if batch.names is None:
        return loss
    return loss + NAMING_SHARE * naming.loss(
        torch.cat(out.image_outputs.pooler_output), batch.names
    )


class Trainer:
    """One training run in a work folder, which holds `resume.pt`, `log.jsonl` and `checkpoint/`."""

    def __init__(self, plan: Plan, tokenizer: Tokenizer, work: Path, threads: int = 2) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(plan.seed)
        self.plan, self.tokenizer, self.work = plan, tokenizer, work
        work.mkdir(parents=True, exist_ok=True)
        self.model = new_model().train()
        self.quantiser = Quantiser(self.model)
        modeling.torch_chunk_gated_delta_rule = partial(DELTA_RULE, chunk_size=32)
        convolution = self.model.model.visual.patch_embed.proj.weight
        self.patch_matrix = nn.Parameter(convolution.data.flatten(1))
        self.naming = Naming(self.model.config.text_config.hidden_size)
        self.optimisers = optimisers(self.model, self.patch_matrix, self.naming.heads)
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
        self.naming.heads.load_state_dict(state["naming"])
        for optimiser, values in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(values)
        self.step, self.pools, self.seconds = state["step"], state["pools"], state["seconds"]

    def _save(self) -> None:
        state = {
            "plan": asdict(self.plan),
            "model": self.model.state_dict(),
            "naming": self.naming.heads.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": self.step,
            "pools": self.pools,
            "seconds": self.seconds,
        }
        torch.save(state, self.work / "resume.pt.new")
        (self.work / "resume.pt.new").replace(self.work / "resume.pt")
        save_checkpoint(self.model, self.tokenizer, self.work / "checkpoint")

    def run(self) -> None:
        """Train to the end; saves at the ends of pools, at most once a minute."""
        if self.step == 0:
            plan = self.plan
            learn_to_see(self.model, self.naming, plan.seed, plan.seeing, plan.peak)
        saved = time.monotonic()
        while self.step < self.plan.steps:
            started = time.monotonic()
            self._learn_pool()
            self.pools += 1
            self.seconds += time.monotonic() - started
            if time.monotonic() - saved > SAVE_EVERY_S or self.step >= self.plan.steps:
                self._save()
                saved = time.monotonic()

    def _learn_pool(self) -> None:
        """Learn one pool of conversations, or what of it still belongs to the round."""
        plan = self.plan
        start, length = plan.round_of(self.step)
        mix = SECOND_ROUND if start else FIRST_ROUND
        grown = min(1.0, self.step / plan.grown_up)
        for batch in pool(self.tokenizer, plan.seed, self.pools, grown, mix, plan.budget):
            if self.step < start + length:
                self._learn(batch)

    def _mode(self) -> str:
        """How this step reads the projections' weights."""
        if self.plan.done(self.step) < self.plan.quantised_from:
            return "float"
        return random.Random(f"{self.plan.seed}/{self.step}").choice(
            ("float", "int4", "int4-signed")
        )

    def _learn(self, batch: Batch) -> None:
        started = time.monotonic()
        with self.quantiser.reading(self._mode()):
            loss = loss_of(self.model, self.naming, batch)
            loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        step_all(self.optimisers, self.model, self.patch_matrix, rate(self.plan, self.step))
        self.naming.heads.zero_grad(set_to_none=True)
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
