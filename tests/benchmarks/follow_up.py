"""Time to first token of a short follow-up after a long history, against reading it all.

`python -m tests.benchmarks.follow_up BUNDLE [--history 1500] [--repeat 3]`; the two are measured in
turn, in one process, and the ratio of the medians is printed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished, Usage
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.model import ModelChoice, load_model

SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=2)
WORDS = "the river runs past seven old houses and a mill "


def _usage(engine: ChatEngine, turns: list[Turn]) -> tuple[Usage, Turn]:
    *_, last = engine.run(turns, SETTINGS, lambda: False)
    assert isinstance(last, Finished)
    return last.usage, Turn("assistant", last.text, token_ids=last.token_ids, finish=last.reason)


def measure(engine: ChatEngine, history: int, repeat: int) -> Iterator[tuple[Usage, Usage]]:
    """Pairs of a follow-up over the live state and the same prompt read from the start."""
    length = engine.plan([Turn("user", WORDS * 20)], SETTINGS).prompt_tokens / 20
    for turn in range(repeat):
        first = Turn("user", f"{turn}: " + WORDS * int(history / length))
        _, answer = _usage(engine, [first])
        follow = [first, answer, Turn("user", "Where?")]
        short, _ = _usage(engine, follow)
        other = [replace(first, text="x" + first.text), *follow[1:]]
        whole, _ = _usage(engine, other)
        yield short, whole


def main() -> None:
    """Print tokens, medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--history", type=int, default=1500)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    asked = parser.parse_args()
    engine = load_model(ModelChoice(asked.bundle), asked.threads).backend
    assert isinstance(engine, ChatEngine)
    pairs = list(measure(engine, asked.history, asked.repeat))
    for short, whole in pairs:
        print(
            f"follow-up: {short.prompt_tokens - short.reused_tokens} read, "
            f"{short.reused_tokens} reused, first token {short.timings.first_token_ms:.0f} ms; "
            f"from the start: {whole.prompt_tokens - whole.reused_tokens} read, "
            f"first token {whole.timings.first_token_ms:.0f} ms"
        )
    medians = [
        statistics.median(usage.timings.first_token_ms for usage in side)
        for side in zip(*pairs, strict=True)
    ]
    print(f"ratio of the medians: 1/{medians[1] / medians[0]:.1f}")


if __name__ == "__main__":
    main()
