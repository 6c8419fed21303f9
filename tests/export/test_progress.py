from __future__ import annotations

import io

import pytest

from q35export.progress import BarReporter, PlainReporter, Reporter, reporter_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def write(reporter: Reporter, pieces: int) -> None:
    reporter.note("reading [bold]folder[/bold]")
    reporter.begin("text", 1000)
    for _ in range(pieces):
        reporter.advance("text", 1000 // pieces)
    reporter.end("text")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the reporter's clock shows."""
    now = [0.0]
    monkeypatch.setattr("q35export.progress.time.monotonic", lambda: now[0])
    return now


def test_a_pipe_gets_a_line_per_tenth_and_no_control_codes(clock: list[float]) -> None:
    stream = io.StringIO()
    with reporter_for(stream) as reporter:
        assert isinstance(reporter, PlainReporter)
        write(reporter, 200)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "reading [bold]folder[/bold]"
    assert lines[1] == "text: writing 1000 B"
    assert lines[2:-1] == [f"text: {n} %, {n * 10} B of 1000 B" for n in range(10, 100, 10)]
    assert lines[-1] == "text: done, 1000 B"
    assert "\x1b" not in stream.getvalue()


def test_percent_and_sizes_of_a_line_agree_where_the_pieces_are_large(clock: list[float]) -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream)
    reporter.begin("vision", 1000)
    for piece in (191, 8, 2, 700, 99):
        reporter.advance("vision", piece)
    assert stream.getvalue().splitlines()[1:] == [
        "vision: 19 %, 191 B of 1000 B",
        "vision: 20 %, 201 B of 1000 B",
        "vision: 90 %, 901 B of 1000 B",
    ]


def test_times_are_given_from_one_second_on(clock: list[float]) -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream)
    reporter.begin("text", 1000)
    for seconds, piece in ((10.0, 500), (10.5, 440), (10.6, 20)):
        clock[0] = seconds
        reporter.advance("text", piece)
    reporter.end("text")
    reporter.begin("vision", 100)
    clock[0] += 0.1
    reporter.advance("vision", 50)
    reporter.end("vision")
    assert stream.getvalue().splitlines() == [
        "text: writing 1000 B",
        "text: 50 %, 500 B of 1000 B, 10 s left",
        "text: 94 %, 940 B of 1000 B",
        "text: done, 1000 B in 11 s",
        "vision: writing 100 B",
        "vision: 50 %, 50 B of 100 B",
        "vision: done, 100 B",
    ]


def test_a_terminal_gets_a_bar_that_ends_full() -> None:
    stream = Terminal()
    with reporter_for(stream) as reporter:
        assert isinstance(reporter, BarReporter)
        write(reporter, 3)
    assert "1,000/1,000" in stream.getvalue() or "1000/1000" in stream.getvalue()
    assert "reading [bold]folder[/bold]" in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_note_steers_no_terminal(stream: io.StringIO) -> None:
    with reporter_for(stream) as reporter:
        reporter.note("model \x1b]0;hi\x07")
    assert "model ␛]0;hi␇" in stream.getvalue()
    assert "\x1b]" not in stream.getvalue()
