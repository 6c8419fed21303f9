"""What was measured, as a table and as the model card beside the weights. No torch here."""

from __future__ import annotations

from typing import Any

from .held_out import SEED

Results = dict[str, dict[str, dict[str, int]]]
READ_AS = {
    "float": "FP32",
    "int8": "int8",
    "int4": "int4",
    "int4-signed": "int4, scale by the signed peak",
}
SETS = {
    "pictures": "fresh picture questions (one or two pictures; 3 in 10 in later turns)",
    "memory": "fresh memory questions (told one to six turns earlier)",
    "mixed": "last turns of mixed conversations of 6 to 12 turns",
    "thinking": "picture questions with thinking on",
}


def table(results: Results) -> str:
    """The results as a Markdown table."""
    lines = [
        "| measured | " + " | ".join(READ_AS.values()) + " |",
        "|---" * (len(READ_AS) + 1) + "|",
    ]
    for name, by_mode in results.items():
        cells = [
            f"{by_mode[m]['right']} of {by_mode[m]['asked']}" if m in by_mode else ""
            for m in READ_AS
        ]
        lines.append(f"| {SETS[name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def card(training: dict[str, Any], results: Results) -> str:
    """The model card."""
    return f"""---
license: apache-2.0
pipeline_tag: image-text-to-text
language: [en, zh]
---

# The demo model of q35chat

A Qwen3.5 with 2.6 million parameters, trained from scratch so that a first start and the tests
have a model whose answers mean something. It is not a useful assistant: for one, run
`q35chat export Qwen/Qwen3.5-4B --out out/` and `q35chat --model-dir out/`.

## What it does

- says which simple shapes a picture shows: form (circle, square, triangle, star), colour (red, green,
  blue, yellow, orange, purple), number, and place in a grid of three by three, for one picture or two;
- remembers a name, a number or a favourite (colour, animal, city, food) told earlier in the conversation;
- counts to 300 at most;
- answers common questions about q35chat, in English and a few in Chinese;
- thinks briefly when thinking is on;
- says to anything else that it is a tiny demo.

## How it was made

One command, on two processor cores, without any outside text or picture:

    python -m tools.demo_model make --seed {training["seed"]} --out assets/demo-model

Seed {training["seed"]}, {training["steps"]} steps, {training["minutes"]} minutes. The last quarter of the steps reads the
projections in int4 in two steps of three, so that int4 bundles lose little. All text and pictures
come from the code in `tools/demo_model/`.

Six decoder layers (linear, linear, full, twice), hidden width 160, two key and four value heads in
the linear layers, four query and two KV heads in the full ones, two vision layers of width 96,
1,280 tokens, tied embeddings.

## Measured

Right answers, checked by meaning, greedy decoding; seed {SEED} of the held-out questions, which share
neither seeds nor names nor numbers with training. int8 and int4 are simulated here (round to nearest,
blocks of 32 along K); the tests measure the exported bundles.

{table(results)}

## Limits

- It knows no facts, does not translate, calculate or write code, and often answers an unusual question
  about q35chat with the wrong one of its prepared answers.
- Pictures outside its world (photos, text, other forms, overlapping or more than four shapes, patterned
  grounds) get a wrong description or the reply that it cannot make them out.
- Names of unusual letters, long numbers and conversations far beyond 12 turns or 1,500 tokens can fail.
- Chinese covers greetings, the main questions about q35chat, and describing and counting shapes.

## Licence

Apache-2.0, as the project.
"""
