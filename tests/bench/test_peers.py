"""The arithmetic of the comparison with other programs, which itself is run by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.benchmarks.peers.llama_cpp import LlamaCpp, speed
from tests.benchmarks.peers.peer import Numbers, Task, build, run
from tests.benchmarks.peers.rounds import alternate, medians, ratios, table

TASK = Task(Path("checkpoint"), Path("work"), "int4", 2, 512, 100, 64, 200)


@dataclass
class Scripted:
    name: str
    order: list[str]
    speed: float
    rounds: int = field(default=0)

    def missing(self) -> str:
        return ""

    def prepare(self) -> None:
        return None

    def divergence(self, _reference: object) -> float:
        return self.speed

    def measure(self) -> Numbers:
        self.order.append(self.name)
        self.rounds += 1
        return numbers(self.speed * self.rounds)


def numbers(value: float) -> Numbers:
    return Numbers(value, 2 * value, 3 * value, 4 * value)


def test_peers_take_turns() -> None:
    order: list[str] = []
    peers = [Scripted("a", order, 1.0), Scripted("b", order, 1.0)]

    assert len(list(alternate(peers, 3))) == 6
    assert order == ["a", "b"] * 3


def test_ratios_are_of_rounds_that_belong_together() -> None:
    ours, theirs = [numbers(2.0), numbers(9.0), numbers(30.0)], [numbers(1.0), numbers(3.0)]

    assert ratios(ours, theirs) == Numbers(2.5, 2.5, 2.5, 2.5)
    assert medians(ours) == numbers(9.0)


def test_the_first_is_compared_with_every_other() -> None:
    measured = {"ours": [numbers(2.0)], "one": [numbers(1.0)], "two": [numbers(4.0)]}
    rows = list(table(measured, {"ours": 0.01, "one": 0.04}))

    assert len(rows) == 2 + 3 + 2
    assert rows[-2].startswith("| ours / one | 2.000 |")
    assert rows[-2].endswith(" 0.250 |")
    assert rows[-1].startswith("| ours / two | 0.500 |")
    assert [row.split(" | ")[-1] for row in rows[2:5]] == ["0.0100 |", "0.0400 |", "not measured |"]


def test_the_speed_of_a_test_of_llama_bench() -> None:
    tests = [
        {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 101.5},
        {"n_prompt": 200, "n_gen": 0, "n_depth": 0, "avg_ts": 99.0},
    ]

    assert speed(tests, 200, 0) == 99.0


def test_a_peer_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    assert "pip download" in LlamaCpp(TASK, None, "Q4_0").missing()
    assert "pip download" in LlamaCpp(TASK, tmp_path, "Q4_0").missing()


def test_a_model_is_made_once_and_never_left_half_done(tmp_path: Path) -> None:
    made = tmp_path / "model"
    write = "import sys; open(sys.argv[1], 'a').write('x')"
    for _ in range(2):
        build([sys.executable, "-c", write, str(made)], made)
    assert made.read_text(encoding="utf-8") == "x"

    broken = tmp_path / "broken"
    with pytest.raises(subprocess.CalledProcessError):
        build([sys.executable, "-c", write + "; sys.exit(1)", str(broken)], broken)
    assert not broken.exists()


def test_a_process_tells_its_output_and_its_peak_memory() -> None:
    text, peak_mb = run([sys.executable, "-c", "x = b'x' * 200_000_000; print(len(x))"])

    assert text == "200000000\n"
    assert peak_mb > 190
