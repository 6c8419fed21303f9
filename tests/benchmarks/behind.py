"""What a step and 512 tokens of a prompt take behind many tokens, beside only reading their rows.

`python -m tests.benchmarks.behind BUNDLE [--behind 100 1900 8000 30000] [--rounds 60]`: steps
behind each in alternation, in one process; medians. Reading 30,000 tokens takes minutes, so the
caches are filled with random rows, which take as long as others. The rows alone are read right
after a step, a share by each thread: no step that reads them can grow by less.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from q35chat.bench.machine import resident
from q35chat.bundle.foreign import open_bundle
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array, GraphSession
from q35chat.runtimes import cpu

FEW, PROMPT, STEPS = 16, 512, 4
_MIB, _FRESH = 1 << 20, 12


@dataclass(slots=True)
class Behind:
    """What was measured behind `used` tokens: milliseconds of steps and of reading the rows alone,
    tokens a second of a prompt."""

    used: int
    decoder: OneGraphDecoder
    steps: list[float] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)
    prompt: float = 0.0


def fill(decoder: OneGraphDecoder, used: int) -> None:
    """A sequence of so many tokens, the first of them read and the rows of all others random."""
    random = np.random.default_rng(3)
    decoder.reset()
    extend(decoder, np.arange(1, FEW + 1), _places(0, FEW))
    arrays = dict(decoder.dump(decoder.snapshot()))
    for name, array in arrays.items():
        if name.startswith(("past_key", "past_value")):
            more = random.standard_normal(
                (*array.shape[:2], used - FEW, array.shape[3]), np.float32
            )
            arrays[name] = np.concatenate([array, more], axis=2)
    arrays["keys"] = np.arange(used)
    arrays["rope_position"] = np.array([used])
    decoder.load(arrays)


def step_times(decoder: OneGraphDecoder) -> list[float]:
    """Milliseconds of some steps, without the first."""
    times = []
    for token in range(STEPS):
        started = perf_counter()
        decoder.step(token)
        times.append((perf_counter() - started) * 1e3)
    return times[1:]


def prompt_speed(decoder: OneGraphDecoder) -> float:
    """Tokens a second of a prompt that goes on."""
    ids, started = np.random.default_rng(5).integers(1, 1000, PROMPT), perf_counter()
    extend(decoder, ids, _places(decoder.used, PROMPT))
    return PROMPT / (perf_counter() - started)


def rows_of(decoder: OneGraphDecoder) -> Iterator[Array]:
    """The filled rows of each head of each cache."""
    for name, array in decoder.dump(decoder.snapshot()):
        if name.startswith(("past_key", "past_value")):
            yield from array[0]


def reading_time(pool: ThreadPoolExecutor, parts: Sequence[Sequence[Array]]) -> float:
    """Milliseconds of reading each of `parts` in a thread."""

    def read(rows: Sequence[Array]) -> None:
        for row in rows:
            np.max(row)

    started = perf_counter()
    list(pool.map(read, parts))
    return (perf_counter() - started) * 1e3


def show_memory(session: GraphSession, most: int) -> None:
    """What is resident while one sequence is short, and when it is long."""
    decoder = OneGraphDecoder(session)
    for used in (FEW, most):
        fill(decoder, used)
        print(f"{resident() / _MIB:,.0f} MiB with {used:,} tokens")


def measure(
    session: GraphSession, behind: Sequence[int], rounds: int, threads: int
) -> Iterator[Behind]:
    """The figures behind each."""
    found = [Behind(used, OneGraphDecoder(session)) for used in behind]
    with ThreadPoolExecutor(threads) as pool:
        for turn in range(rounds):
            for one in found:
                if turn % _FRESH == 0:
                    fill(one.decoder, one.used)
                    one.decoder.step(1)
                one.steps += step_times(one.decoder)
                heads = list(rows_of(one.decoder))
                found[0].decoder.step(1)
                parts = [heads[first::threads] for first in range(threads)]
                nothing = reading_time(pool, [[]] * threads)
                one.rows.append(reading_time(pool, parts) - nothing)
    for one in found:
        fill(one.decoder, one.used)
        one.prompt = prompt_speed(one.decoder)
        yield one


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--behind", type=int, nargs="+", default=[100, 1900, 8000, 30_000])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    session = cpu(asked.threads).open_graph(open_bundle(asked.bundle).graph_path("text"))
    show_memory(session, max(asked.behind))
    first = 0.0
    for one in measure(session, asked.behind, asked.rounds, asked.threads):
        step, rows = statistics.median(one.steps), statistics.median(one.rows)
        first = first or step
        print(
            f"behind {one.used:6,}: {1e3 / step:5.1f} tokens a second, a step {step:6.2f} ms, "
            f"{step / first:.3f} of the first; its rows alone {rows:5.2f} ms, "
            f"{1 + rows / first:.3f}; {one.prompt:4.0f} tokens a second of a prompt"
        )


def _places(first: int, count: int) -> Array:
    return np.tile(np.arange(first, first + count), (3, 1))


if __name__ == "__main__":
    main()
