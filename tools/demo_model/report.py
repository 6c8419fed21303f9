"""What was measured, as a table and as the model card beside the weights. No torch here."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from .held_out import SEED

Results = dict[str, dict[str, dict[str, int]]]
SETS = {
    "pictures": "fresh picture questions (one or two pictures; 3 in 10 in later turns)",
    "memory": "fresh memory questions (told one to six turns earlier)",
    "mixed": "last turns of mixed conversations of 6 to 12 turns",
    "thinking": "picture questions with thinking on",
}


def table(results: Results) -> str:
    """The results as a Markdown table."""
    precisions = [*next(iter(results.values()))]
    lines = [f"| measured | {' | '.join(precisions)} |", "|---" * (len(precisions) + 1) + "|"]
    for name, by_precision in results.items():
        cells = [f"{score['right']} of {score['asked']}" for score in by_precision.values()]
        lines.append(f"| {SETS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def card(training: dict[str, Any], results: Results) -> str:
    """The model card."""
    text = Template(Path(__file__).with_name("card.md").read_text(encoding="utf-8"))
    return text.substitute(training, held_out_seed=SEED, table=table(results))
