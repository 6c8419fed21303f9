"""First token of a short question in a chat that is opened again, against reading it all and
against a follow-up in the process that goes on; and what keeping the state takes.

`python -m tests.benchmarks.reopen BUNDLE [--history 1450] [--question 30] [--repeat 5]`: each round
reads a chat of its own, keeps it, asks on with a question of so many tokens, forgets everything,
opens it again, and reads it all once more, in one process; medians of the rounds. Memory is that of
the process above what it held before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from time import perf_counter

from q35chat.bench.machine import resident
from q35chat.bundle.foreign import open_bundle
from q35chat.chat.engine import ChatEngine
from q35chat.chat.events import Finished, Usage
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.model import graph_opener
from q35chat.states.listing import drop_states, stored_states
from q35chat.states.pool import StatePool

SETTINGS = ChatSettings(sampling=SamplingSettings(temperature=0.0), max_new_tokens=2)
WORDS = "the river runs past seven old houses and a mill "
QUESTION = "Where does it come from, and who lived there before the mill was built? "
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds and MiB of one round. The first three are until the first token."""

    follow_up_ms: float
    reopened_ms: float
    all_read_ms: float
    leaving_ms: float
    idle_leaving_ms: float
    recall_ms: float
    state_mib: float
    keeping_peak_mib: float
    recalling_peak_mib: float


class Peak:
    """The most memory that the process held during a block, above what it held before."""

    mib = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look every millisecond."""
        before, most, over = resident(), [0], threading.Event()

        def look() -> None:
            while not over.wait(0.001):
                most[0] = max(most[0], resident())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.mib = max(0, most[0] - before) / _MIB


def ask(engine: ChatEngine, turns: list[Turn]) -> tuple[Usage, Turn]:
    """What a turn took, and its answer."""
    *_, last = engine.run(turns, SETTINGS, never)
    assert isinstance(last, Finished)
    return last.usage, Turn("assistant", last.text, token_ids=last.token_ids, finish="stop")


def never() -> bool:
    """Nothing is stopped."""
    return False


def forget(engine: ChatEngine) -> None:
    """Be an engine that has read nothing."""
    engine._model.decoder.reset()
    engine._model.cache.clear()


def timed_keep(engine: ChatEngine, turns: list[Turn]) -> float:
    """Milliseconds of keeping the state, which is nothing where it is kept already."""
    started = perf_counter()
    engine.keep(turns, SETTINGS, "chat", never)
    return (perf_counter() - started) * 1e3


def question_of(engine: ChatEngine, tokens: int) -> Turn:
    """A question of so many tokens, or the first letters of one that come nearest."""
    text = QUESTION * tokens
    empty = engine.plan([Turn("user", "")], SETTINGS).prompt_tokens

    def reaches(letters: int) -> bool:
        asked = engine.plan([Turn("user", text[: letters + 1])], SETTINGS)
        return asked.prompt_tokens - empty >= tokens

    return Turn("user", text[: bisect_left(range(len(text)), True, key=reaches) + 1])


def measure(
    engine: ChatEngine, folder: Path, history: int, question: int, repeat: int
) -> Iterator[Round]:
    """The rounds; the first warms up and is not among them."""
    length = engine.plan([Turn("user", WORDS * 20)], SETTINGS).prompt_tokens / 20
    asked = question_of(engine, question)
    for turn in range(repeat + 1):
        first = Turn("user", f"{turn}: " + WORDS * int(history / length))
        _, answer = ask(engine, [first])
        chat = [first, answer]
        engine.read_ahead(chat, SETTINGS, never)
        keeping, recalling = Peak(), Peak()
        leaving = timed_keep(engine, chat)
        idle = timed_keep(engine, chat)
        follow = [*chat, asked]
        short, _ = ask(engine, follow)
        size = stored_states(folder)[0].size / _MIB
        forget(engine)
        reopened, _ = ask(engine, follow)
        assert reopened.reused_tokens == short.reused_tokens > 0
        forget(engine)
        started = perf_counter()
        with recalling.watched():
            engine.read_ahead(chat, SETTINGS, never)
        recall = (perf_counter() - started) * 1e3
        drop_states(folder)
        with keeping.watched():
            timed_keep(engine, chat)
        drop_states(folder)
        forget(engine)
        whole, _ = ask(engine, follow)
        assert whole.reused_tokens == 0
        if turn:
            yield Round(
                follow_up_ms=short.timings.first_token_ms,
                reopened_ms=reopened.timings.first_token_ms,
                all_read_ms=whole.timings.first_token_ms,
                leaving_ms=leaving,
                idle_leaving_ms=idle,
                recall_ms=recall,
                state_mib=size,
                keeping_peak_mib=keeping.mib,
                recalling_peak_mib=recalling.mib,
            )


def main() -> None:
    """Print each round, the medians, and the ratios that matter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--history", type=int, default=1450)
    parser.add_argument("--question", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None, help="Where states are written.")
    asked = parser.parse_args()
    bundle = open_bundle(asked.bundle)
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        folder = Path(place) / "states"
        pool = StatePool(folder, 8 << 30)
        opener = graph_opener(bundle, asked.threads)
        engine = ChatEngine.open(bundle, opener, states=pool, speculate="off")
        rounds = list(measure(engine, folder, asked.history, asked.question, asked.repeat))
    for one in fields(Round):
        values = [getattr(found, one.name) for found in rounds]
        shown = "  ".join(f"{value:8.1f}" for value in values)
        print(f"{one.name:20} {statistics.median(values):8.1f}   of {shown}")
    median = {
        one.name: statistics.median(getattr(found, one.name) for found in rounds)
        for one in fields(Round)
    }
    reopened, state = median["reopened_ms"], median["state_mib"]
    print(
        f"reopened against reading all   1/{median['all_read_ms'] / reopened:.1f}  (at most 1/20)"
    )
    print(f"reopened against a follow-up   {reopened / median['follow_up_ms']:.2f}  (at most 1.5)")
    print(f"leaving before it is kept      {median['leaving_ms']:.0f} ms  (at most 50)")
    print(f"peak while keeping, in states  {median['keeping_peak_mib'] / state:.2f}  (at most 1)")


if __name__ == "__main__":
    main()
