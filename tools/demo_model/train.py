"""The training loop: a plan of rates, checkpoints, a resume file and a log.

Knows batches and the model; knows nothing of what the conversations say.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, dataclass, replace
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
from .dialogues import FINISH, LESSONS, MEMORY, SEEING, WIDER, Mix
from .model import new_model, special_id
from .naming import Naming, learn_to_see
from .optimise import optimisers, step_all
from .quantise import Quantiser

SAVE_EVERY_S = 60.0
NAMING_SHARE = 0.5
"""Weight of naming what lies under each picture token, beside the answers' loss."""
ORDER_SHARE = 0.25
"""Weight of telling the pictures of a message apart."""
ORDER_AFTER = 3
"""Decoder layers behind which that is asked: the second full attention needs it."""
DELTA_RULE = modeling.torch_chunk_gated_delta_rule
"""The same sum with any chunk size; short sequences are fastest with short chunks."""


@dataclass(frozen=True)
class Round:
    """A part of the language training with a learning rate that rises, stays and falls to zero."""

    lessons: Mix
    steps: int
    peak: float
    """Largest learning rate."""
    falling_from: float
    """Share of the steps after which the learning rate falls."""
    quantised_from: float
    """Share of the steps after which the projections are read in int4 two times in three."""

    def rate(self, step: int, warm_up: int) -> float:
        """Learning rate of a step of this round."""
        left = (1 - step / self.steps) / (1 - self.falling_from)
        return self.peak * min(1.0, (step + 1) / warm_up, left)


@dataclass(frozen=True)
class Plan:
    """What decides the weights: the same plan gives the same training."""

    seed: int = 7
    seeing: int = 1200
    """Steps of the vision tower alone (see `naming`)."""
    seen_at_once: int = 32
    """Pictures in each of these steps."""
    rounds: tuple[Round, ...] = (
        Round(LESSONS, 5200, 2.5e-3, falling_from=0.56, quantised_from=0.86),
        Round(MEMORY, 1300, 1.2e-3, falling_from=0.0, quantised_from=0.4),
        Round(SEEING, 900, 1.2e-3, falling_from=0.0, quantised_from=0.4),
        Round(FINISH, 400, 8e-4, falling_from=0.0, quantised_from=0.4),
        Round(WIDER, 1500, 1.2e-3, falling_from=0.0, quantised_from=0.5),
    )
    """The language training: short lessons that grow, then what is hardest."""
    budget: int = 3000
    """Tokens of a batch, padding included."""
    warm_up: int = 100
    """Steps in which a round's learning rate rises."""
    grown_up: int = 200
    """Pools over which conversations grow to full length."""
    averaged: int = 2
    """Rounds, counted from the end, whose last weights are averaged in the end."""
    known: int = 0
    """Steps of `seeing` in which only the heads learn: of a tower that has been trained."""

    @property
    def steps(self) -> int:
        """Steps of all rounds."""
        return sum(part.steps for part in self.rounds)

    def going_on(self, steps: int | None) -> Plan:
        """The plan of a model that has all rounds behind it but the last, for which it takes the
        shorter `AGAIN`, its last round of `steps` steps."""
        *before, last = AGAIN
        return replace(
            self,
            seeing=1500,
            known=100,
            seen_at_once=16,
            budget=2000,
            rounds=(*before, replace(last, steps=steps or last.steps)),
            grown_up=0,
            averaged=2,
        )

    def at(self, step: int) -> tuple[Round, int]:
        """The round that a step belongs to, and its number in that round."""
        for part in self.rounds:
            if step < part.steps:
                return part, step
            step -= part.steps
        raise ValueError(f"the plan ends {step} steps before that")


AGAIN = (
    Round(WIDER, 2300, 1.2e-3, falling_from=0.0, quantised_from=0.5),
    Round(WIDER, 1700, 1.0e-3, falling_from=0.0, quantised_from=0.5),
)
"""To go on with, from weights that know what they are asked but not what others draw and say."""


def rate(plan: Plan, step: int) -> float:
    """Learning rate of a step."""
    part, number = plan.at(step)
    return part.rate(number, plan.warm_up)


def loss_of(model: Qwen3_5ForConditionalGeneration, naming: Naming, batch: Batch) -> Tensor:
    """Mean cross entropy over the tokens to learn, and the losses of the lessons in `naming`."""
    pictured = batch.ids == special_id("<|image_pad|>")
    out = model.model(
        input_ids=batch.ids,
        pixel_values=batch.pixels,
        image_grid_thw=batch.grids,
        mm_token_type_ids=pictured.int(),
        use_cache=False,
        output_hidden_states=True,
    )
    targets = batch.labels[:, 1:]
    learnt = targets >= 0
    logits = model.lm_head(out.last_hidden_state[:, :-1][learnt])
    loss: Tensor = functional.cross_entropy(logits, targets[learnt])
    if batch.names is None or batch.order is None:
        return loss
    ordered = out.hidden_states[ORDER_AFTER][pictured]
    named = naming.loss(torch.cat(out.image_outputs.pooler_output), batch.names)
    order = naming.order_loss(ordered, batch.order)
    return loss + NAMING_SHARE * named + ORDER_SHARE * order


class Trainer:
    """One training run in a work folder, which holds `resume.pt`, `log.jsonl` and `checkpoint/`.

    It begins with the weights in the folder `base`, or with random ones.
    """

    def __init__(
        self,
        plan: Plan,
        tokenizer: Tokenizer,
        work: Path,
        threads: int = 2,
        base: Path | None = None,
    ) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(plan.seed)
        self.plan, self.tokenizer, self.work = plan, tokenizer, work
        work.mkdir(parents=True, exist_ok=True)
        model = new_model()
        if base is not None:
            model = Qwen3_5ForConditionalGeneration.from_pretrained(base, dtype=torch.float32)
        self.model = model.train()
        self.quantiser = Quantiser(self.model)
        modeling.torch_chunk_gated_delta_rule = partial(DELTA_RULE, chunk_size=32)
        convolution = self.model.model.visual.patch_embed.proj.weight
        self.patch_matrix = nn.Parameter(convolution.data.flatten(1))
        self.naming = Naming(self.model.config.text_config.hidden_size)
        self.optimisers = optimisers(self.model, self.patch_matrix, self.naming.heads)
        self.ends: list[dict[str, Tensor]] = []
        self.step, self.pools, self.pace = 0, 0, 0.0
        self.seconds = self.processor_seconds = 0.0
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
        self.step, self.pools, self.ends = state["step"], state["pools"], state["ends"]
        self.seconds, self.processor_seconds = state["seconds"]

    def _save(self) -> None:
        state = {
            "plan": asdict(self.plan),
            "model": self.model.state_dict(),
            "naming": self.naming.heads.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "ends": self.ends,
            "step": self.step,
            "pools": self.pools,
            "seconds": [self.seconds, self.processor_seconds],
        }
        torch.save(state, self.work / "resume.pt.new")
        (self.work / "resume.pt.new").replace(self.work / "resume.pt")
        save_checkpoint(self.model, self.tokenizer, self.work / "checkpoint")

    def run(self) -> None:
        """Train to the end; saves at the ends of pools, at most once a minute."""
        plan = self.plan
        begun = self.seconds - time.monotonic()
        processor_begun = self.processor_seconds - time.process_time()
        if self.step == 0:
            peak = plan.rounds[0].peak
            learn_to_see(
                self.model,
                self.naming,
                plan.seed,
                plan.seeing,
                peak,
                plan.seen_at_once,
                plan.known,
            )
        saved = self.seconds
        while self.step < plan.steps:
            grown = min(1.0, (self.pools + 1) / (plan.grown_up + 1))
            part, number = plan.at(self.step)
            batches = pool(self.tokenizer, plan.seed, self.pools, grown, part.lessons, plan.budget)
            for batch in batches[: part.steps - number]:
                self._learn(batch)
            if number + len(batches) >= part.steps:
                self._end(part)
            self.pools += 1
            self.seconds = begun + time.monotonic()
            self.processor_seconds = processor_begun + time.process_time()
            if self.step >= plan.steps or self.seconds - saved > SAVE_EVERY_S:
                self._save()
                saved = self.seconds

    def _end(self, part: Round) -> None:
        """Keep the weights of one of the last rounds; at the end take their mean."""
        if part in self.plan.rounds[-self.plan.averaged :]:
            weights = self.model.state_dict()
            self.ends.append({name: value.clone() for name, value in weights.items()})
        if self.step == self.plan.steps:
            ends, names = self.ends, self.ends[0]
            mean = {name: sum(end[name] for end in ends) / len(ends) for name in names}
            self.model.load_state_dict(mean)

    def _mode(self) -> str:
        """How this step reads the projections' weights."""
        part, number = self.plan.at(self.step)
        if number < part.quantised_from * part.steps:
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
        seconds = time.monotonic() - started
        self.pace = 0.98 * self.pace + 0.02 * seconds if self.pace else seconds
        if self.step % 10 == 0:
            self._log(loss.item(), norm.item(), batch, seconds)
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
        left = (self.plan.steps - self.step) * self.pace / 60
        print(
            f"step {self.step:5d} of {self.plan.steps}  loss {loss:.4f}  about {left:.0f} min left",
            flush=True,
        )
