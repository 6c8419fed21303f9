"""Measures a folder: greedy answers to held-out questions, weights in float, int8 and int4.

The int8 and int4 here are simulated (see `quantise`); the tests measure exported bundles.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, Qwen3_5ForConditionalGeneration

from .held_out import (
    SEED,
    Question,
    held_out_conversations,
    held_out_memory_questions,
    held_out_picture_questions,
)
from .pictures import patches
from .quantise import MODES, Quantiser
from .report import Results
from .tokenizer import picture_tokens

BATCH = 40


@dataclass(frozen=True)
class Score:
    """Right answers out of all, and some of the wrong ones as (last question, expected, said)."""

    right: int
    asked: int
    wrong: tuple[tuple[str, str, str], ...]

    @property
    def percent(self) -> float:
        """Share of right answers, 0 to 100."""
        return 100 * self.right / self.asked


class Measured:
    """A loaded model that answers batches of questions greedily."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = Qwen3_5ForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self.quantiser = Quantiser(self.model)

    def prompt(self, question: Question, thinking: bool = False) -> list[int]:
        """Token ids of the question with one `<|image_pad|>` for each picture token."""
        text: str = self.tokenizer.apply_chat_template(
            question.messages, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
        head, *rest = text.split("<|image_pad|>")
        for picture, after in zip(question.pictures, rest, strict=True):
            head += "<|image_pad|>" * picture_tokens(picture) + after
        ids: list[int] = self.tokenizer(head).input_ids
        return ids

    def answers(
        self, questions: Sequence[Question], thinking: bool = False, longest: int = 160
    ) -> list[str]:
        """Greedy answers, left-padded in one batch; end token and padding removed."""
        prompts = [self.prompt(question, thinking) for question in questions]
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        seen = [patches(picture) for question in questions for picture in question.pictures]
        if seen:
            inputs["pixel_values"] = torch.from_numpy(
                np.concatenate([values for values, _ in seen])
            )
            inputs["image_grid_thw"] = torch.tensor([(1, *grid) for _, grid in seen])
            inputs["mm_token_type_ids"] = (ids == self.model.config.image_token_id).int()
        with torch.no_grad():
            out = self.model.generate(
                **inputs,
                do_sample=False,
                temperature=None,
                top_k=None,
                top_p=None,
                max_new_tokens=longest,
            )
        said: list[str] = self.tokenizer.batch_decode(out[:, width:])
        return [answer.split("<|im_end|>")[0].split("<|endoftext|>")[0] for answer in said]

    def score(
        self, questions: Sequence[Question], mode: str = "float", thinking: bool = False
    ) -> Score:
        """How many answers are right with the weights read in `mode` (see `quantise.MODES`)."""
        order = sorted(questions, key=lambda question: len(self.prompt(question)))
        right, wrong = 0, []
        with self.quantiser.reading(mode):
            for start in range(0, len(order), BATCH):
                group = order[start : start + BATCH]
                for question, answer in zip(group, self.answers(group, thinking), strict=True):
                    if question.check(answer.split("</think>")[-1].strip()):
                        right += 1
                    else:
                        wrong.append(
                            (str(question.messages[-1]["content"]), question.expected, answer)
                        )
        return Score(right, len(order), tuple(wrong))


def measured(folder: Path) -> Results:
    """Right answers by set and by the way the weights are read, with a progress line for each."""
    model = Measured(folder)
    sets = {
        "pictures": held_out_picture_questions(500),
        "memory": held_out_memory_questions(200),
        "mixed": held_out_conversations(100),
    }
    results: Results = {}
    for name, questions in sets.items():
        results[name] = {mode: _counted(model, name, questions, mode) for mode in MODES}
    again = held_out_picture_questions(100, SEED + 1)
    results["thinking"] = {"float": _counted(model, "thinking", again, "float", thinking=True)}
    return results


def _counted(
    model: Measured, name: str, questions: Sequence[Question], mode: str, thinking: bool = False
) -> dict[str, int]:
    started = time.monotonic()
    score = model.score(questions, mode, thinking)
    seconds = time.monotonic() - started
    print(
        f"{name:10s} {mode:12s} {score.right} of {score.asked} right ({seconds:.0f} s)", flush=True
    )
    return {"right": score.right, "asked": score.asked}
