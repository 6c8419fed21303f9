from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from q35chat.bench.document import (
    Ratio,
    ResultComparison,
    as_text,
    compare,
    document,
    read_document,
)
from q35chat.bench.machine import Memory
from q35chat.bench.measure import Allocation, DecodeRun, Plan, PrefillRun
from q35chat.bench.report import comparison_lines, result_lines
from q35chat.bench.results import Result, Spread, Subject
from q35chat.bench.traffic import Traffic
from q35chat.errors import UsageError

SUBJECT = Subject("model", "cpu", "int4", 64, 2, "a machine", "some software")
PLAN = Plan(prompt=10, tokens=4, contexts=(20,), repeat=3)


def result(step_ms: float = 10.0, threads: int = 2) -> Result:
    """Three rounds, of which the last is half as fast; 10 % of a step is outside the runtime."""
    made = Result(
        Subject(**{**as_fields(SUBJECT), "threads": threads}),
        PLAN,
        load_ms=100.0,
        before=Memory(10, 20, 5),
        loaded=Memory(100, 120, 50),
        traffic=Traffic(weights=1000, states=100, slot=10),
        allocation=Allocation(400.0, 0.0),
        after=Memory(110, 150, 50),
        complete=True,
    )
    for factor, bandwidth in ((1.0, 132_000.0), (1.0, 140_000.0), (2.0, 80_000.0)):
        made.prefills.append(PrefillRun(0, 10, 50.0 * factor, 49.0 * factor, 60.0 * factor))
        wall = (step_ms * factor,) * 4
        inside = tuple(ms * 0.9 for ms in wall)
        made.decodes.append(DecodeRun(20, wall, inside, (0.1,) * 4, 8, bandwidth))
    return made


def as_fields(subject: Subject) -> dict[str, Any]:
    return {name: getattr(subject, name) for name in Subject.__slots__}


def test_the_median_round_speaks_for_the_speed() -> None:
    (point,) = result().decode_points()
    (prefill,) = result().prefill_points()

    assert point.tokens_per_s == Spread(100.0, 75.0, 100.0)
    assert (point.p50_ms, point.p95_ms) == (10.0, 20.0)
    assert prefill.tokens_per_s.median == pytest.approx(200.0)
    assert prefill.first_token_ms.median == 60.0


def test_the_engines_own_share_is_what_is_outside_the_runtime() -> None:
    (point,) = result().decode_points()
    (prefill,) = result().prefill_points()

    assert point.own_share == pytest.approx(0.1)
    assert point.own_ms == pytest.approx(1.0)
    assert prefill.own_share == pytest.approx(0.02)


def test_the_own_share_is_of_the_time_of_a_round_not_of_its_typical_step() -> None:
    made = result()
    wall, quick = (1.0, 1.0, 1.0, 7.0), (0.9, 0.9, 0.9)
    made.decodes[:] = [
        DecodeRun(20, wall, (*quick, slowest), (0.1,) * 4, 0) for slowest in (6.3, 2.3, 1.3)
    ]  # outside the runtime: 1, 5 and 6 of 10 ms

    (point,) = made.decode_points()
    assert point.own_ms == pytest.approx(0.1)
    assert point.own_share == pytest.approx(0.5)


def test_the_ceiling_is_the_bandwidth_after_a_round_over_what_its_middle_step_reads() -> None:
    (point,) = result().decode_points()
    a_step = 1000 + 100 + 10 * (20 + 4 // 2 + 1)  # its own row too

    assert point.ceiling == pytest.approx(132_000 / a_step)
    assert point.reached == pytest.approx(100.0 / (140_000 / a_step))  # beside 1.01 and 0.83 of it


def test_a_round_without_a_bandwidth_has_no_say_in_the_share() -> None:
    made = result()
    made.decodes[1:] = [replace(run, bandwidth=None) for run in made.decodes[1:]]

    (point,) = made.decode_points()
    assert point.reached == pytest.approx(100.0 / (132_000 / 1330))


def test_no_ceiling_without_a_bandwidth() -> None:
    unknown = result()
    unknown.decodes = [replace(run, bandwidth=None) for run in unknown.decodes]

    (point,) = unknown.decode_points()
    assert (point.ceiling, point.reached) == (None, None)
    assert any("behind 20" in line for line in result_lines(unknown))


def a_large_result() -> Result:
    """Long names and large numbers everywhere."""
    machine = "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz, 64 CPUs, Linux x86_64"
    subject = Subject("Qwen3.5-35B-A3B-of-somebody", "cpu", "int4", 131072, 64, machine, "x, " * 40)
    large = Memory(123 << 30, 456 << 30, 78 << 30)
    made = Result(
        subject, PLAN, 123456.0, large, large, Traffic(20 << 30, 5 << 20, 98765),
        allocation=Allocation(1e9, 1e9), after=large, complete=True,
    )  # fmt: skip
    for context in (100, 65536, 130944):
        made.prefills.append(PrefillRun(context, 2048, 20.0, 10.0, 99999.0))
        for ms in (0.9, 1.1, 99999.0):
            steps = (ms, *(ms + 0.3 * place for place in range(127)))
            choose = tuple(step / 10 for step in steps)
            made.decodes.append(DecodeRun(context, steps, choose, choose, 9 << 20, 400e9))
    return made


def test_no_line_is_wider_than_80_columns() -> None:
    content = document(a_large_result())
    lines = [
        *result_lines(a_large_result()),
        *comparison_lines(compare(content, content)),
        *comparison_lines(compare(content, document(result()))),
    ]

    assert max(map(len, lines)) <= 80
    assert any("130944" in line for line in lines)


def test_what_is_wrapped_is_wrapped_between_words_below_its_label() -> None:
    lines = list(result_lines(a_large_result()))

    start = next(place for place, line in enumerate(lines) if line.startswith("machine"))
    assert lines[start].endswith(" Linux x86_64;")
    assert lines[start + 1].startswith("           x, x,")


def test_bytes_are_said_in_a_unit_that_fits() -> None:
    made = result()
    made.traffic = Traffic(weights=1_260_000, states=34_000, slot=256)

    said = " ".join(" ".join(result_lines(made)).split())
    assert "a step reads 1.3 MB of weights, 34.0 kB of states and 256 bytes for each token" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.56789, "0.5679"),
        (9999.0, "9,999"),
        (39536.0, "39,536"),
        (104_398_848, "104.4 M"),
        (29_754_334_812.0, "29.75 G"),
    ],
)
def test_compared_numbers_keep_four_digits_and_no_exponent(value: float, said: str) -> None:
    _, line = comparison_lines(
        ResultComparison((Ratio("x", value, value, more_is_better=True),), ())
    )

    assert line.split("  ")[-1] == "more"
    assert line.count(f" {said} ") == 2


def test_a_result_compares_with_itself_after_a_way_through_a_file(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    path.write_text(as_text(document(result())), encoding="utf-8")
    comparison = compare(document(result()), read_document(path))

    assert comparison.differences == ()
    assert {ratio.ratio for ratio in comparison.ratios} == {1.0}
    assert len(comparison.ratios) == len(document(result())["summary"])


def test_ratios_say_which_way_is_better() -> None:
    comparison = compare(document(result(step_ms=5.0)), document(result(step_ms=10.0)))

    found = {ratio.name: ratio for ratio in comparison.ratios}
    assert found["decode tokens per s, behind 20"].ratio == pytest.approx(2.0)
    assert found["decode tokens per s, behind 20"].more_is_better
    assert found["step p95 ms, behind 20"].ratio == pytest.approx(0.5)
    assert not found["step p95 ms, behind 20"].more_is_better
    assert found["load ms"].ratio == 1.0


def test_what_else_differs_is_named() -> None:
    comparison = compare(document(result(threads=4)), document(result()))

    assert comparison.differences == (("threads", "4", "2"),)
    assert "  not the same threads: 4 now, 2 then" in list(comparison_lines(comparison))


def test_results_with_nothing_in_common_say_what_to_do() -> None:
    now, then = document(result()), document(result())
    then["summary"] = {}

    assert any("use the same --prompt" in line for line in comparison_lines(compare(now, then)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "subject": {}, "summary": []}',
        '{"schema": 2, "subject": {}, "summary": {"a": "b"}}',
        '{"schema": 2, "subject": {}, "summary": {"a": NaN}}',
        '{"schema": 2, "subject": {}, "summary": {"a": Infinity}}',
        f'{{"schema": 2, "subject": {{}}, "summary": {{"a": {10**400}}}}}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "then.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match="is no result of a measurement"):
        read_document(path)


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    path.write_text(as_text(document(result()) | {"schema": 1}), encoding="utf-8")

    with pytest.raises(UsageError, match="has schema 1, this q35chat reads 2: measure again"):
        read_document(path)


def test_a_pipe_is_no_result_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UsageError, match=r"cannot read .*pipe\.json: it is a folder, a pipe"):
        read_document(tmp_path / "pipe.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*gone\.json"):
        read_document(tmp_path / "gone.json")


def test_one_value_is_its_own_spread() -> None:
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(3.0, 2.0, 4.0)
