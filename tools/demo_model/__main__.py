"""`python -m tools.demo_model make|evaluate|report`: the demo model from one command."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

from . import tokenizer
from .checkpoint import load_tokenizer
from .evaluate import measured
from .report import card
from .train import Plan, Trainer

WORK = Path("build/demo-model")


def make(
    seed: int, steps: int | None, out: Path, work: Path, base: Path | None, threads: int
) -> None:
    """Train (or go on from `work/resume.pt`), measure, and write the folder with its card.

    With the folder `base` only what others draw and say is trained, from its weights.
    """
    plan = Plan(seed=seed)
    if base is not None:
        plan = plan.going_on(steps)
    elif steps is not None:
        plan = replace(plan, rounds=(replace(plan.rounds[0], steps=steps),))
    words = tokenizer.train(seed) if base is None else load_tokenizer(base)
    trainer = Trainer(plan, words, work, threads, base)
    trainer.run()
    out.mkdir(parents=True, exist_ok=True)
    for file in (work / "checkpoint").iterdir():
        shutil.copyfile(file, out / file.name)
    results = measured(out)
    training = {
        "seed": seed,
        "steps": plan.steps,
        "minutes": round(trainer.seconds / 60),
        "processor_minutes": round(trainer.processor_seconds / 60),
        "history": f"It went on from {base}, with what others draw and say."
        if base
        else "One run.",
    }
    (work / "report.json").write_text(
        json.dumps({"training": training, "results": results}, indent=2) + "\n"
    )
    (out / "README.md").write_text(card(training, results))
    print(f"Wrote {out} ({sum(file.stat().st_size for file in out.iterdir()) / 1e6:.1f} MB).")


def main() -> None:
    """Parse the command line and run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="train from a seed, measure and write the folder")
    making.add_argument("--seed", type=int, default=7)
    making.add_argument("--steps", type=int, help="fewer steps, for a trial")
    making.add_argument(
        "--base", type=Path, help="go on from this folder, with what others draw and say"
    )
    making.add_argument("--threads", type=int, default=2)
    making.add_argument("--out", type=Path, default=Path("assets/demo-model"))
    making.add_argument("--work", type=Path, default=WORK, help="resume file, log and checkpoints")
    measuring = commands.add_parser("evaluate", help="measure a folder on held-out questions")
    measuring.add_argument("folder", type=Path, nargs="?", default=Path("assets/demo-model"))
    reporting = commands.add_parser("report", help="print the report of the last make")
    reporting.add_argument("--work", type=Path, default=WORK)
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.command == "make":
        make(
            arguments.seed,
            arguments.steps,
            arguments.out,
            arguments.work,
            arguments.base,
            arguments.threads,
        )
    elif arguments.command == "evaluate":
        print(json.dumps(measured(arguments.folder), indent=2))
    else:
        print((arguments.work / "report.json").read_text())
    print(f"Done in {(time.monotonic() - started) / 60:.1f} min.")


if __name__ == "__main__":
    main()
