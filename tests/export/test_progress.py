from __future__ import annotations

import io

import pytest

from q35chat.counting import readable_size
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


def test_a_pipe_gets_a_line_per_tenth_and_no_control_codes() -> None:
    stream = io.StringIO()
    with reporter_for(stream) as reporter:
        assert isinstance(reporter, PlainReporter)
        write(reporter, 200)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "reading [bold]folder[/bold]"
    assert lines[1] == "text: writing 1000 B"
    assert [line.split()[1] for line in lines[2:-1]] == [str(tenth) for tenth in range(10, 100, 10)]
    assert all("s left" in line for line in lines[2:-1])
    assert lines[-1].startswith("text: done, 1000 B in ")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_bar_that_ends_full() -> None:
    stream = Terminal()
    with reporter_for(stream) as reporter:
        assert isinstance(reporter, BarReporter)
        write(reporter, 3)
    assert "1,000/1,000" in stream.getvalue() or "1000/1000" in stream.getvalue()
    assert "reading [bold]folder[/bold]" in stream.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (5 << 30, "5.0 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes_are_given_in_the_unit_that_suits_them(count: int, text: str) -> None:
    assert readable_size(count) == text
