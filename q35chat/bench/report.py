"""A result, and a comparison of two, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from q35chat.bench.document import Comparison
from q35chat.bench.memory import Memory
from q35chat.bench.plot import blocks, latencies
from q35chat.bench.results import Result
from q35chat.bench.spread import Spread
from q35chat.counting import counted


def result_lines(result: Result) -> Iterator[str]:
    """Everything measured; a part that is missing has no line."""
    subject = result.subject
    yield (
        f"model      {subject.model}, {subject.precision}, {subject.target}, "
        f"{counted(subject.threads, 'thread')}, {subject.capacity} slots"
    )
    yield f"machine    {subject.machine}; {subject.software}"
    yield f"load       {result.load_ms:.0f} ms"
    yield from _prefills(result)
    yield from _decodes(result)
    yield from _steps(result)
    yield from _memory(result)
    yield from _bandwidth(result)


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Now, then and their ratio, a line a number, and what else was different."""
    yield "compared   (now, then, now / then)"
    for ratio in comparison.ratios:
        quotient = "" if ratio.ratio is None else f"{ratio.ratio:8.3f} x"
        better = "more is better" if ratio.more_is_better else "less is better"
        yield (
            f"  {ratio.name:36} {_number(ratio.now):>12} {_number(ratio.then):>12} "
            f"{quotient}  {better}"
        )
    if not comparison.ratios:
        yield "  nothing was measured in both: use the same --prompt and --context"
    for name, now, then in comparison.differences:
        yield f"  not the same {name}: {now} now, {then} then"


def _prefills(result: Result) -> Iterator[str]:
    points = list(result.prefill_points())
    if points:
        yield f"{'prefill':20} {'tokens/s (quartiles)':24} first token  own share"
    for point in points:
        yield (
            f"  {f'{point.tokens} behind {point.context}':18} {_speed(point.tokens_per_s):24} "
            f"{point.first_token_ms.median:8.0f} ms  {point.own_share:9.2%}"
        )


def _decodes(result: Result) -> Iterator[str]:
    points = list(result.decode_points())
    if points:
        yield (
            f"{'decode':20} {'tokens/s (quartiles)':24} {'p50':>8} {'p95':>8} ms  "
            f"{'own ms (choosing)':17}  own share  of the ceiling"
        )
    for point in points:
        reached = ""
        if point.ceiling is not None and point.reached is not None:
            reached = f"{point.reached:6.1%} of {point.ceiling:.1f}"
        yield (
            f"  {f'behind {point.context}':18} {_speed(point.tokens_per_s):24} "
            f"{point.p50_ms:8.2f} {point.p95_ms:8.2f}     "
            f"{f'{point.own_ms:.3f} ({point.choose_ms:.3f})':17}  {point.own_share:9.2%}  {reached}"
        )


def _steps(result: Result) -> Iterator[str]:
    for point in result.decode_points():
        values = latencies(result.steps_at(point.context))
        yield (
            f"  {f'behind {point.context}':18} {blocks(values)} "
            f"{min(values):.1f} to {max(values):.1f} ms"
        )


def _memory(result: Result) -> Iterator[str]:
    now = result.after or result.loaded
    yield (
        f"memory     {_mb(now.peak)} at most; {_mb(result.loaded.resident)} after loading"
        f"{_mapped(result.loaded)}, {_mb(result.before.resident)} before"
    )
    growth = [point.growth_per_step for point in result.decode_points()]
    if growth:
        yield f"growth     {max(growth):,.0f} bytes of resident memory a step"
    if result.allocation is not None:
        yield (
            f"allocation a step holds {result.allocation.held:,.0f} bytes of Python's memory at "
            f"most and keeps {result.allocation.kept:,.0f}"
        )


def _bandwidth(result: Result) -> Iterator[str]:
    if not result.bandwidths:
        return
    threads = counted(result.subject.threads, "thread")
    spread = Spread.of([found / 1e9 for found in result.bandwidths])
    yield f"bandwidth  {_speed(spread)} GB/s read after each round with {threads}"
    if result.traffic is not None:
        traffic = result.traffic
        yield (
            f"traffic    a step reads {_mb(traffic.weights)} of weights, {_mb(traffic.states)} of "
            f"states and {traffic.slot / 1e3:.1f} kB for each token of context"
        )


def _mapped(memory: Memory) -> str:
    return "" if memory.files is None else f" ({_mb(memory.files)} of it mapped files)"


def _speed(speed: Spread) -> str:
    return f"{speed.median:.1f} ({speed.low:.1f} to {speed.high:.1f})"


def _mb(value: float) -> str:
    return f"{value / 1e6:,.0f} MB"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.4g}"
