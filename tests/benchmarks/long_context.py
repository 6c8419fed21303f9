"""A sequence that fills its last slot: exact, and what steps, memory and its kept state take.

`python -m tests.benchmarks.long_context [--bundle BUNDLE] [--slots 32768]`: of a small random
model, unless a bundle is named. The sequence is read twice, in chunks of 64 and of 512 tokens,
filled to its last slot by steps, and once more after it was kept in a file and put into the other
decoder.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from q35chat.bench.machine import resident
from q35chat.bundle.bundle import Bundle
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.session import Array
from q35chat.engine.slots import NoSlotError
from q35chat.runtimes import cpu
from q35chat.states.file import read_state, write_state
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint

STEPS = 32
_MIB = 1 << 20


def small_bundle(folder: Path, slots: int) -> Bundle:
    """A small random model with so many slots, in FP32."""
    checkpoint = make_checkpoint(folder / "checkpoint", "plain", seed=5)
    request = ExportRequest(
        str(checkpoint), folder / "out", target="cpu", precision="fp32", max_seq_len=slots
    )
    export(request, PlainReporter(io.StringIO()))
    return Bundle.open(folder / "out")


def read(decoder: OneGraphDecoder, ids: Array, chunk: int) -> Array:
    """The logits [V] after `ids` in chunks of so many tokens, a copy; says how fast it went."""
    started, shown = perf_counter(), decoder.used
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        places = np.tile(np.arange(decoder.used, decoder.used + len(part)), (3, 1))
        for _ in decoder.chunks(part, places):
            pass
        if decoder.used - shown >= len(ids) // 4:
            speed = (decoder.used - shown) / (perf_counter() - started)
            print(
                f"{decoder.used:6,} read, {speed:6.0f} tokens a second, {resident() / _MIB:.0f} MiB"
            )
            started, shown = perf_counter(), decoder.used
    return decoder.logits().copy()


def fill(decoder: OneGraphDecoder, steps: int) -> tuple[list[int], bytes, float]:
    """Greedy tokens into the slots that are left; the last logits, milliseconds of a step."""
    token, tokens, times = int(decoder.logits().argmax()), [], []
    for _ in range(steps):
        tokens.append(token)
        started = perf_counter()
        token = int(decoder.step(token).argmax())
        times.append((perf_counter() - started) * 1e3)
    return tokens, decoder.logits().tobytes(), statistics.median(times)


def compare(bundle: Bundle, folder: Path) -> None:
    """Print the figures; AssertionError where anything is not exact."""
    runtime = cpu(None)
    one, other = (
        OneGraphDecoder(runtime.open_graph(bundle.graph_path("text")), chunk=chunk)
        for chunk in (64, 512)
    )
    slots = one.capacity
    ids = np.random.default_rng(7).integers(0, 256, slots - STEPS - 1)
    wanted, found = read(one, ids, 64), read(other, ids, 512)
    difference = float(np.abs(wanted - found).max() / np.abs(wanted).max())
    print(f"chunks of 64 against 512: {difference:.1e} of the largest logit")
    assert difference < 1e-4

    path = folder / "long.state"
    started = perf_counter()
    write_state(path, one.dump(one.snapshot()), lambda _: True)
    written = perf_counter()
    other.load(read_state(path))
    seconds = perf_counter() - written
    size = path.stat().st_size / _MIB
    print(f"state {size:.0f} MiB, written in {written - started:.2f} s, read in {seconds:.2f} s")
    first = [one.step(1).tobytes(), other.step(1).tobytes()]
    tokens, bits, milliseconds = fill(one, STEPS)
    assert first[0] == first[1]
    assert fill(other, STEPS)[:2] == (tokens, bits)
    assert one.used == other.used == slots
    print(f"{slots:,} of {slots:,} slots used, the same to the bit; a step {milliseconds:.2f} ms")
    try:
        one.step(1)
    except NoSlotError as error:
        print(error)
    else:
        raise AssertionError("there was a slot more")


def main() -> None:
    """Do it for the bundle that the command line names, or a small one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, default=None)
    parser.add_argument("--slots", type=int, default=32_768)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        bundle = Bundle.open(asked.bundle) if asked.bundle else small_bundle(folder, asked.slots)
        compare(bundle, folder)


if __name__ == "__main__":
    main()
