from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from q35chat.chat.events import Event, Notice, PrefillProgress
from q35chat.commands.console import Console
from q35chat.commands.render import JsonRenderer, StreamRenderer, stats_lines, summary
from tests.cli.scripted import Recorded, finished, recorded, token, turn_events


def streamed(events: Iterable[Event], *, terminal: bool = False) -> Recorded:
    seen = recorded(terminal=terminal)
    renderer = StreamRenderer(seen.console)
    for event in events:
        renderer.show(event)
    return seen


def test_the_answer_alone_goes_to_stdout() -> None:
    seen = streamed(turn_events("Hel", "", "lo", reasoning=["hm", "m."]))
    assert seen.out.getvalue() == "Hello\n"
    assert seen.err.getvalue() == "hmm.\n"


def test_an_answer_that_ends_its_line_gets_no_second_newline() -> None:
    assert streamed(turn_events("Hi\n")).out.getvalue() == "Hi\n"


def test_an_empty_answer_prints_nothing() -> None:
    seen = streamed(turn_events())
    assert (seen.out.getvalue(), seen.err.getvalue()) == ("", "")


def test_reasoning_ends_its_line_before_the_answer_starts() -> None:
    events: list[Event] = [token("because", "reasoning"), token("so")]
    seen = streamed(events)
    assert seen.err.getvalue() == "because\n"
    assert seen.out.getvalue() == "so"


def test_reasoning_is_dim_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    events = [token("why", "reasoning")]
    assert streamed(events, terminal=True).err.getvalue() == "\x1b[2mwhy\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert streamed(events, terminal=True).err.getvalue() == "why"
    assert streamed(events).err.getvalue() == "why"


def test_progress_is_written_over_and_gone_before_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = streamed(turn_events("Hi"), terminal=True)
    shown = seen.err.getvalue()
    assert "\r\x1b[Kprompt: 100 of 2,048 slots, 64 for pictures" in shown
    assert "\r\x1b[Klooking at pictures: 1 of 1" in shown
    assert "\r\x1b[Kreading the prompt: 80 of 80 tokens (100 tokens/s)" in shown
    assert shown.endswith("\r\x1b[K")


def test_a_token_without_text_of_its_own_takes_nothing_off_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    seen = streamed([token("你"), token(""), token("好"), token("", "reasoning")], terminal=True)
    assert (seen.out.getvalue(), seen.err.getvalue()) == ("你好", "")


def test_progress_stays_out_of_pipes_and_dumb_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [PrefillProgress(1, 2, 3.0)]
    assert streamed(events).err.getvalue() == ""
    monkeypatch.setenv("TERM", "dumb")
    assert streamed(events, terminal=True).err.getvalue() == ""


def test_what_the_model_says_cannot_steer_the_terminal() -> None:
    seen = streamed([token("a\x1b[2Jb\r"), token("x\x07", "reasoning"), Notice("n\x1b\nm")])
    assert seen.out.getvalue() == "a␛[2Jb␍\n"
    assert seen.err.getvalue() == "x␇\nn␛␊m\n"


def test_markup_from_the_model_is_printed_as_it_is() -> None:
    assert streamed(turn_events("[bold]x[/bold] **y**")).out.getvalue() == "[bold]x[/bold] **y**\n"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("stop", ""),
        ("length", "stopped after 3 answer tokens; --max-new-tokens allows more\n"),
        (
            "capacity",
            (
                "stopped at the capacity of 2,048 slots; export with a larger --max-seq-len, "
                "or start the server with more context\n"
            ),
        ),
        ("cancelled", "stopped\n"),
        ("loop", "stopped after 3 answer tokens: the text was repeating itself\n"),
    ],
)
def test_an_ending_that_the_model_did_not_choose_is_explained(reason: str, said: str) -> None:
    seen = streamed([token("Hi"), finished("Hi", reason=reason)])  # type: ignore[arg-type]
    assert seen.out.getvalue() == "Hi\n"
    assert seen.err.getvalue() == said


def test_closing_ends_the_lines_that_are_open() -> None:
    seen = recorded()
    renderer = StreamRenderer(seen.console)
    renderer.show(token("half an ans"))
    renderer.close()
    renderer.close()
    assert seen.out.getvalue() == "half an ans\n"


def test_json_is_one_object_with_exactly_the_named_fields() -> None:
    seen = recorded()
    renderer = JsonRenderer(seen.console, load_ms=1234.5678, session=lambda: "abc")
    for event in turn_events("Hel", "lo 中文", reasoning=["hm"]):
        renderer.show(event)
    renderer.close()
    assert seen.err.getvalue() == ""
    assert seen.out.getvalue().count("\n") == 1
    assert json.loads(seen.out.getvalue()) == {
        "text": "Hello 中文",
        "reasoning": "hm",
        "token_ids": [7, 8, 9, 2],
        "prompt_tokens": 100,
        "reused_tokens": 20,
        "completion_tokens": 4,
        "image_tokens": 64,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "finish_reason": "stop",
        "capacity": {"total": 2048, "used": 104, "free": 1944},
        "timings": {
            "load_ms": 1234.568,
            "vision_ms": 12.0,
            "prefill_ms": 800.0,
            "first_token_ms": 850.0,
            "decode_ms_per_token": {"p50": 2.0, "p95": 4.0},
            "predict_ms": 5.0,
            "wall_ms": 10.0,
        },
        "session": "abc",
    }


def test_json_of_a_turn_without_decode_steps_has_no_percentiles() -> None:
    seen = recorded()
    JsonRenderer(seen.console, 0.0).show(finished(times=()))
    assert json.loads(seen.out.getvalue())["timings"]["decode_ms_per_token"] == {
        "p50": None,
        "p95": None,
    }


def test_json_keeps_the_exact_text_without_a_raw_control_character() -> None:
    seen = recorded()
    JsonRenderer(seen.console, 0.0).show(finished("a\x1b\x9b\u202eb"))
    assert json.loads(seen.out.getvalue())["text"] == "a\x1b\x9b\u202eb"
    assert not any(char in seen.out.getvalue() for char in "\x1b\x9b\u202e")


def test_a_notice_during_json_goes_to_stderr() -> None:
    seen = recorded()
    JsonRenderer(seen.console, 0.0).show(Notice("thinking was cut"))
    assert (seen.out.getvalue(), seen.err.getvalue()) == ("", "thinking was cut\n")


def test_a_closed_reader_is_reported_to_the_caller() -> None:
    seen = recorded()

    def broken(_: str) -> int:
        raise BrokenPipeError

    seen.out.write = broken  # type: ignore[method-assign]
    with pytest.raises(BrokenPipeError):
        StreamRenderer(Console(seen.out, seen.err)).show(token("Hi"))


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
