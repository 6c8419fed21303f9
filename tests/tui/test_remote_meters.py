"""What the screen says of a server that answers in place of a model on this machine."""

from __future__ import annotations

from dataclasses import replace

from q35chat.chat.service import ModelInfo
from q35chat.tui.chat.meter import Capacity, Reading
from q35chat.tui.text import model_facts
from q35chat.tui.widgets import meters, welcome

SERVER = ModelInfo(
    name="qwen3.5", target="server", precision="", device="host:8000", capacity=4096,
    is_demo=False, remote="http://host:8000/v1", load="KV cache 37% used · 3 waiting",
)  # fmt: skip
READING = Reading(
    Capacity(4096, 1000, 24), SERVER, steps=(2.0, 4.0), p50=2.0, p95=4.0, wall=3.0,
    tokens_per_s=333.0, made=3, running=True, details=True,
)  # fmt: skip


def test_the_time_between_tokens_is_called_that_and_no_runtime_is_named() -> None:
    assert str(meters.step_head(READING)).startswith("BETWEEN TOKENS")
    legend = str(meters.step_legend(READING))
    assert "p50 2.0 ms" in legend
    assert "mean 3.0 ms" in legend
    shown = legend + str(meters.line(READING, 120))
    assert "runtime" not in shown
    assert "predict" not in shown


def test_what_is_estimated_is_marked_and_what_is_told_is_not() -> None:
    guessed = replace(READING, model=replace(SERVER, estimated=True))
    for reading, marks in ((READING, 0), (guessed, 1)):
        assert str(meters.capacity_head(reading)).count("≈") == marks
        assert str(meters.capacity_legend(reading)).count("≈") == 3 * marks
        assert str(meters.line(reading, 120)).count("≈") == marks
    assert "slots estimated" in model_facts(replace(SERVER, estimated=True))


def test_the_model_stands_with_its_server_and_how_busy_that_is() -> None:
    assert model_facts(SERVER) == ["server", "host:8000", "KV cache 37% used", "3 waiting"]


def test_the_welcome_says_where_the_words_go() -> None:
    lines = "\n".join(map(str, welcome._lines(SERVER, "F9", absent="")))
    assert "What you write goes to http://host:8000/v1. 4,096 slots" in lines
    assert "local" not in lines


def test_what_a_server_says_of_itself_is_never_obeyed() -> None:
    evil = replace(SERVER, name="\x1b]0;x\x07[b]m", load="\x1b[2J · a", device="\x1b[31mhost")
    shown = str(meters.model_rows(replace(READING, model=evil)))
    shown += "\n".join(map(str, welcome._lines(evil, "F9", absent="")))
    assert "\x1b" not in shown
    assert "[b]m" in shown
