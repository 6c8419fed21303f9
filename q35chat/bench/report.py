"""A result, and a comparison of two, as lines for people: of at most `WIDTH` columns, so that no
terminal breaks them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from q35chat.bench.document import ResultComparison
from q35chat.bench.plot import blocks, latencies
from q35chat.bench.results import DecodePoint, PrefillPoint, Result, Spread
from q35chat.errors import Remedy
from q35chat.text import pluralise

WIDTH: Final = 80
_LABEL, _PLACE, _SPEED = 11, 20, 24
_BARS = 40
_SPEEDS = f"{'tokens/s (quartiles)':{_SPEED}}"


def result_lines(result: Result) -> Iterator[str]:
    """Everything measured; a part that is missing has no line."""
    subject = result.subject
    yield from _said(
        "model",
        f"{subject.model}, {subject.precision}, {subject.target}, "
        f"{pluralise(subject.threads, 'thread')}, {subject.capacity} slots",
    )
    yield from _said("machine", f"{subject.machine}; {subject.software}")
    yield from _said("load", f"{result.load_ms:.0f} ms")
    points = list(result.decode_points())
    prefills = map(_prefill, result.prefill_points())
    yield from _table("prefill", f"{_SPEEDS} first token  own share", prefills)
    columns = f"{_SPEEDS} {'p50 ms':>8} {'p95 ms':>8}  of the ceiling"
    yield from _table("decode", columns, map(_decode, points))
    columns = f"{'ms of a step (choosing)':{_SPEED}} share of the time"
    yield from _table("own", columns, map(_own, points))
    yield from _table("steps", "", (_steps(result, point) for point in points))
    yield from _memory(result)
    yield from _bandwidth(result)


def comparison_lines(comparison: ResultComparison) -> Iterator[str]:
    """Now, then and their ratio, a line a number, and what else was different."""
    yield f"{'compared':42} {'now':>9} {'then':>9} {'now/then':>9}  better"
    for ratio in comparison.ratios:
        found, quotient = ratio.ratio, ""
        if found is not None:
            quotient = f"{found:.3f} x" if found < 1e3 else f"{_number(found)} x"
        better = "more" if ratio.more_is_better else "less"
        yield (
            f"  {ratio.name:40} {_number(ratio.now):>9} {_number(ratio.then):>9} {quotient:>9}"
            f"  {better}"
        )
    if not comparison.ratios:
        yield f"  nothing was measured in both: {Remedy.MEASURE_THE_SAME.words()}"
    for name, now, then in comparison.differences:
        yield from _wrapped(f"  not the same {name}: {now} now, {then} then", 4)


def _table(head: str, columns: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A head and a line for each place, named by tokens and context; nothing without any."""
    lines = [f"{f'  {place}':{_PLACE}} {numbers}".rstrip() for place, numbers in rows]
    if lines:
        yield f"{head:{_PLACE}} {columns}".rstrip()
    yield from lines


def _prefill(point: PrefillPoint) -> tuple[str, str]:
    times = f"{point.first_token_ms.median:8.0f} ms  {point.own_share:9.2%}"
    where = f"{point.tokens} behind {point.context}"
    return where, f"{_speed(point.tokens_per_s):{_SPEED}} {times}"


def _decode(point: DecodePoint) -> tuple[str, str]:
    reached = ""
    if point.ceiling is not None and point.reached is not None:
        reached = f"{point.reached:6.1%} of {_rate(point.ceiling)}"
    times = f"{point.p50_ms:8.2f} {point.p95_ms:8.2f}  {reached}"
    return f"behind {point.context}", f"{_speed(point.tokens_per_s):{_SPEED}} {times}"


def _own(point: DecodePoint) -> tuple[str, str]:
    times = f"{point.own_ms:.3f} ({point.choose_ms:.3f})"
    return f"behind {point.context}", f"{times:{_SPEED}} {point.own_share:17.2%}"


def _steps(result: Result, point: DecodePoint) -> tuple[str, str]:
    values = latencies(result.steps_at(point.context))
    times = f"{min(values):.1f} to {max(values):.1f} ms"
    return f"behind {point.context}", f"{blocks(values, _BARS)} {times}"


def _memory(result: Result) -> Iterator[str]:
    now, files = result.after or result.loaded, result.loaded.files
    mapped = "" if files is None else f" ({_size(files)} of it mapped files)"
    yield from _said(
        "memory",
        f"{_size(now.peak)} at most; {_size(result.loaded.resident)} after loading"
        f"{mapped}, {_size(result.before.resident)} before",
    )
    growth = [point.growth_per_step for point in result.decode_points()]
    if growth:
        yield from _said("growth", f"{max(growth):,.0f} bytes of resident memory a step")
    if result.allocation is not None:
        yield from _said(
            "allocation",
            f"a step holds {result.allocation.held:,.0f} bytes of Python's memory at most and "
            f"keeps {result.allocation.kept:,.0f}",
        )


def _bandwidth(result: Result) -> Iterator[str]:
    if not result.bandwidths:
        return
    threads = pluralise(result.subject.threads, "thread")
    spread = Spread.of([found / 1e9 for found in result.bandwidths])
    yield from _said("bandwidth", f"{_speed(spread)} GB/s read after each round with {threads}")
    if result.traffic is not None:
        traffic = result.traffic
        yield from _said(
            "traffic",
            f"a step reads {_size(traffic.weights)} of weights, {_size(traffic.states)} of states "
            f"and {_size(traffic.slot)} for each token of context",
        )


def _said(label: str, text: str) -> Iterator[str]:
    yield from _wrapped(f"{label:{_LABEL}}{text}", _LABEL)


def _wrapped(line: str, indent: int) -> list[str]:
    """`line` in lines of at most `WIDTH` columns; all but the first are indented."""
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _speed(speed: Spread) -> str:
    return f"{_rate(speed.median)} ({_rate(speed.low)} to {_rate(speed.high)})"


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 999.95 else f"{value:.0f}"


def _size(count: float) -> str:
    """Bytes in a decimal unit in which they are at least 1; many in MB, for the digits."""
    if count < 1e3:
        return pluralise(count, "byte")
    factor, unit = (1e3, "kB") if count < 1e6 else (1e6, "MB") if count < 1e10 else (1e9, "GB")
    value = count / factor
    return f"{value:.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def _number(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:,.4g} {name}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
