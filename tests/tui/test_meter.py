"""The steps behind the live meters: what one token took, however many one run computed."""

from __future__ import annotations

from q35chat.chat.events import Token
from q35chat.tui.feed import Batch
from q35chat.tui.meter import SHOWN_STEPS, Meter, Reading


def token(predict_ms: float, wall_ms: float, ident: int | None = 1) -> Token:
    return Token(ident, "x", "answer", predict_ms, wall_ms, 100)


def read(*batches: list[Token]) -> Reading:
    meter = Meter()
    meter.begin()
    for tokens in batches:
        meter.take(Batch(tokens=tokens))
    return meter.reading()


def test_the_first_token_is_no_step() -> None:
    reading = read([token(0, 0), token(9, 10)], [token(9, 10)])
    assert (reading.made, reading.steps) == (3, (10.0, 10.0))
    assert (reading.p50, reading.wall, reading.predict) == (10.0, 10.0, 9.0)
    assert reading.tokens_per_s == 100.0


def test_nothing_but_a_first_token_has_no_speed() -> None:
    reading = read([token(0, 0)])
    assert (reading.made, reading.steps, reading.first_step) == (1, (), 0)
    assert (reading.wall, reading.tokens_per_s) == (0.0, 0.0)


def test_tokens_that_one_run_computed_share_its_time() -> None:
    reading = read([token(0, 0), token(20, 30), token(0, 1), token(0, 2)], [token(9, 10)])
    assert reading.steps == (11.0, 11.0, 11.0, 10.0)
    assert (reading.wall, reading.predict) == (43 / 4, 29 / 4)


def test_a_run_that_two_frames_show_is_shared_all_the_same() -> None:
    frames = [token(0, 0), token(20, 30)], [token(0, 2)], [token(0, 1), token(9, 10)]
    assert read(*frames).steps == (11.0, 11.0, 11.0, 10.0)


def test_the_oldest_run_shown_counts_whole() -> None:
    steps = [token(9, 10) for _ in range(SHOWN_STEPS - 1)]
    reading = read([token(0, 0), token(20, 30), token(0, 2), *steps])
    assert reading.steps == (16.0, *[10.0] * (SHOWN_STEPS - 1))
    assert reading.first_step == 1


def test_text_that_was_held_back_is_no_step() -> None:
    assert read([token(0, 0), token(9, 10), token(0, 0, None)]).steps == (10.0,)
