from __future__ import annotations

from dataclasses import replace

from q35chat.commands.render import stats_lines, summary
from tests.cli.scripted import finished


def test_stats_name_speed_latency_and_capacity() -> None:
    assert stats_lines(finished(), load_ms=1200.0) == [
        "load      1200 ms",
        (
            "prompt    100 tokens, 64 for pictures, 20 reused; "
            "vision 12 ms, prefill 800 ms, 100.0 tokens/s"
        ),
        "answer    4 tokens, 1 of them reasoning; first token after 850 ms",
        "decode    2.0 ms a token (p50), 4.0 ms (p95), 400.0 tokens/s; 1.2 ms mean in the runtime",
        "capacity  104 of 2,048 slots used",
    ]


def test_stats_name_the_conversation_that_keeps_the_turn() -> None:
    assert stats_lines(finished(), 1.0, session="abc")[-1] == "session   abc"


def test_stats_name_the_tokens_guessed_ahead_where_there_were_any() -> None:
    plain = finished()
    usage = replace(plain.usage, drafted_tokens=12, accepted_tokens=9)
    guessed = replace(plain, usage=usage)

    lines = stats_lines(guessed, load_ms=1.0)

    assert "ahead     9 of 12 guessed tokens came true" in lines
    assert not any(line.startswith("ahead") for line in stats_lines(plain, load_ms=1.0))
    assert summary(guessed, 1.0)["drafted_tokens"] == 12
    assert summary(guessed, 1.0)["accepted_tokens"] == 9


def test_stats_of_a_turn_without_decode_steps_leave_them_out() -> None:
    lines = stats_lines(finished(times=()), load_ms=1.0)
    assert not any(line.startswith("decode") for line in lines)
