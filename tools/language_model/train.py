"""The training loop: batches of windows, a learning rate that stays and then falls."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3_5ForConditionalGeneration

from tools.demo_model.checkpoint import PREPROCESSOR, generation_config
from tools.demo_model.tokenizer import save as save_tokenizer

from .model import new_model
from .texts import Corpus

SAVE_EVERY_S = 180.0


@dataclass(frozen=True)
class Plan:
    """What decides the weights. Until the rate falls a run with other `steps` is the same."""

    steps: int = 2400
    seed: int = 11
    rows: int = 4
    """Windows of a batch."""
    window: int = 256
    shares: tuple[float, ...] = (0.45, 0.3, 0.25)
    """How much of a batch is English, Chinese and code."""
    peak: float = 1.5e-3
    warm_up: int = 60
    falling: int = 500
    """Steps at the end over which the rate falls to a twentieth."""

    def rate(self, step: int) -> float:
        """Learning rate of a step."""
        left = max((self.steps - step) / self.falling, 0.05)
        return self.peak * min(1.0, (step + 1) / self.warm_up, left)

    def batch(self, corpus: Corpus, step: int) -> Tensor:
        """`[rows, window + 1]` token ids."""
        rng = np.random.default_rng([self.seed, step])
        rows = []
        for kind in rng.choice(list(corpus.tokens), self.rows, p=self.shares):
            tokens = corpus.tokens[str(kind)]
            start = rng.integers(0, len(tokens) - self.window - 1)
            rows.append(tokens[start : start + self.window + 1].astype(np.int64))
        return torch.from_numpy(np.stack(rows))


def train(corpus: Corpus, plan: Plan, work: Path, threads: int) -> None:
    """Train to the end of the plan from where `work` was left; save every few minutes."""
    torch.set_num_threads(threads)
    model = new_model(plan.seed).train()
    text = model.model.language_model
    # Muon multiplies in bfloat16, which takes minutes a step where a CPU has no such arithmetic.
    optimiser = torch.optim.AdamW(text.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    step, resume = 0, work / "resume.pt"
    if resume.exists():
        state = torch.load(resume, weights_only=True)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
    saved = time.monotonic()
    while step < plan.steps:
        started = time.monotonic()
        ids = plan.batch(corpus, step)
        loss = _loss(model, ids)
        loss.backward()
        nn.utils.clip_grad_norm_(text.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = plan.rate(step)
        optimiser.step()
        model.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0:
            print(f"step {step} of {plan.steps}  loss {loss.item():.4f}  "
                  f"{time.monotonic() - started:.1f} s", flush=True)  # fmt: skip
        if step == plan.steps or time.monotonic() - saved > SAVE_EVERY_S:
            _save(model, optimiser, step, corpus, work)
            saved = time.monotonic()


def _loss(model: Qwen3_5ForConditionalGeneration, ids: Tensor) -> Tensor:
    """Mean cross entropy of every next token of `ids` `[rows, T]`."""
    hidden = model.model.language_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    loss: Tensor = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    return loss


def _save(
    model: Qwen3_5ForConditionalGeneration,
    optimiser: torch.optim.Optimizer,
    step: int,
    corpus: Corpus,
    work: Path,
) -> None:
    state: dict[str, Any] = {
        "step": step,
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
    }
    torch.save(state, work / "resume.pt.new")
    (work / "resume.pt.new").replace(work / "resume.pt")
    folder = work / "checkpoint"
    model.generation_config = generation_config()
    model.save_pretrained(folder)
    save_tokenizer(corpus.tokenizer, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=2) + "\n")
