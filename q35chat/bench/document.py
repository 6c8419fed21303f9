"""A result as JSON, and two of them compared by the numbers they have in common."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from q35chat.bench.results import Result
from q35chat.errors import Remedy, UsageError
from q35chat.json_reader import parse_json, read_bytes

SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """One number, now and then. `now / then` above 1 is good where `more_is_better`."""

    name: str
    now: float
    then: float
    more_is_better: bool

    @property
    def ratio(self) -> float | None:
        """Now over then; None where that says nothing."""
        return self.now / self.then if self.then else None


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """Ratios, and what else differs: name, now, then."""

    ratios: tuple[Ratio, ...]
    differences: tuple[tuple[str, str, str], ...]


def document(result: Result) -> dict[str, Any]:
    """Everything, down to each step. Milliseconds, bytes, tokens per second."""
    return {
        "schema": SCHEMA,
        "complete": result.complete,
        "subject": asdict(result.subject),
        "plan": asdict(result.plan),
        "summary": summary(result),
        "prefill": [asdict(point) for point in result.prefill_points()],
        "decode": [asdict(point) for point in result.decode_points()],
        "traffic": result.traffic and asdict(result.traffic),
        "allocation": result.allocation and asdict(result.allocation),
        "memory": {
            "before": asdict(result.before),
            "loaded": asdict(result.loaded),
            "after": result.after and asdict(result.after),
        },
        "bandwidths": result.bandwidths,
        "runs": {
            "prefill": [asdict(run) for run in result.prefills],
            "decode": [asdict(run) for run in result.decodes],
        },
    }


def summary(result: Result) -> dict[str, float]:
    """The numbers that two results are compared by."""
    numbers = {"load ms": result.load_ms}
    for prefill in result.prefill_points():
        where = f"{prefill.tokens} behind {prefill.context}"
        numbers[f"prefill tokens per s, {where}"] = prefill.tokens_per_s.median
        if prefill.context == 0:
            numbers[f"first token ms, {where}"] = prefill.first_token_ms.median
    for point in result.decode_points():
        where = f"behind {point.context}"
        numbers[f"decode tokens per s, {where}"] = point.tokens_per_s.median
        numbers[f"step p95 ms, {where}"] = point.p95_ms
        numbers[f"own ms of a step, {where}"] = point.own_ms
        if point.reached is not None:
            numbers[f"share of the ceiling, {where}"] = point.reached
    if result.after is not None:
        numbers["peak memory bytes"] = result.after.peak
    if result.allocation is not None:
        numbers["Python bytes held in a step"] = result.allocation.held
    if result.bandwidths:
        numbers["memory bytes read per s"] = statistics.median(result.bandwidths)
    return numbers


def as_text(content: Mapping[str, Any]) -> str:
    """One JSON document."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_document(path: Path) -> dict[str, Any]:
    """A result that a measurement wrote. Raises UsageError."""
    no_result = UsageError(f"{path} is no result of a measurement:", Remedy.NAME_A_RESULT)
    try:
        data = read_bytes(path)
    except ValueError as error:
        what = f"cannot read {path}: {error}"
        raise UsageError(what, Remedy.NAME_A_RESULT) from error
    try:
        content = parse_json(data)
        schema, subject, numbers = content["schema"], content["subject"], content["summary"]
    except (ValueError, KeyError, TypeError) as error:
        raise no_result from error
    if schema != SCHEMA:
        raise UsageError(
            f"{path} has schema {schema!r}, this q35chat reads {SCHEMA}: measure again"
        )
    if not (isinstance(subject, dict) and isinstance(numbers, dict) and _are_numbers(numbers)):
        raise no_result
    return dict(content)


def compare(now: Mapping[str, Any], then: Mapping[str, Any]) -> ResultComparison:
    """Two documents, number by number."""
    pairs = [(name, value) for name, value in now["summary"].items() if name in then["summary"]]
    ratios = tuple(
        Ratio(name, value, then["summary"][name], more_is_better="per s" in name or "share" in name)
        for name, value in pairs
    )
    subject, other = now["subject"], then["subject"]
    differences = tuple(
        (name, str(value), str(other.get(name)))
        for name, value in subject.items()
        if value != other.get(name)
    )
    return ResultComparison(ratios, differences)


def _are_numbers(values: Mapping[Any, Any]) -> bool:
    return all(
        isinstance(value, int | float) and abs(value) <= sys.float_info.max  # NaN is not
        for value in values.values()
    )
