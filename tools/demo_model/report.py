"""What was measured, as a table and as the model card beside the weights. No torch here."""

from __future__ import annotations

from pathlib import Path
from string import Template
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
    text = Template(Path(__file__).with_name("card.md").read_text(encoding="utf-8"))
    return text.substitute(training, held_out_seed=SEED, table=table(results))
