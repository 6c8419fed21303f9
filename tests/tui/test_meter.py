"""The steps behind the live meters: what one token took, however many one run computed. Once a
turn has ended, its own numbers."""

from __future__ import annotations

import pytest

from q35chat.chat.events import Finished, PromptPlan, Timings, Token, Usage, VisionProgress
from q35chat.chat.service import Step
from q35chat.chat.values import Turn
from q35chat.tui.chat.meter import SHOWN_STEPS, Meter, Reading
from q35chat.tui.chat.running_turn import Batch
from q35chat.tui.text import rate, usage_items
from q35chat.tui.widgets.meters import progress_rows, speed
from tests.doubles.scripted_workspace import MODEL, attachment
from tests.tui.on_the_way import resting


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


def usage(tokens: int, *wall_ms: float, route: str = "") -> Usage:
    timings = Timings(0.0, 80.0, 90.0, tuple(0.9 * wall for wall in wall_ms), wall_ms, route)
    return Usage(12, 0, 0, 0, tokens, 2_048, 12 + tokens, timings)


def ended(ended: Usage, *tokens: Token) -> Reading:
    """The meter after a turn that brought `tokens` in one frame and its end in the next."""
    meter = Meter(clock=lambda: 0.0)
    meter.begin()
    meter.take(Batch(tokens=[*tokens]))
    meter.take(Batch(finished=Finished("stop", "", "", (), ended)))
    return meter.reading()


def agree(reading: Reading, told: Usage) -> None:
    """The panel and the line under the answer give the same speed and number of tokens."""
    items = usage_items(told)
    assert f"↓{reading.made:,}" in items
    assert (rate(reading.tokens_per_s) in items) == bool(reading.steps)
    tokens = "1 token" if reading.made == 1 else f"{reading.made:,} tokens"
    assert str(speed(reading)).startswith(f"{rate(reading.tokens_per_s)}  {tokens}\n")


def test_a_long_turn_that_has_ended_has_the_speed_of_all_its_steps() -> None:
    walls = [*[4.0] * 250, *[8.0] * 40]
    told = usage(292, *walls, 8.0)
    reading = ended(told, token(0, 0), *(token(0.9 * wall, wall) for wall in walls))
    assert reading.made == 292
    assert reading.tokens_per_s == pytest.approx(1000 * 291 / sum((*walls, 8.0)))
    assert (len(reading.steps), reading.first_step) == (SHOWN_STEPS, 291 - SHOWN_STEPS)
    agree(reading, told)


def test_a_turn_that_has_ended_counts_the_end_of_the_answer() -> None:
    told = usage(2, 7.5, route="the chunk graph")
    reading = ended(told, token(0, 0))
    assert (reading.made, reading.steps, reading.first_token_s) == (2, (7.5,), 0.09)
    assert reading.route == "the chunk graph"
    agree(reading, told)


def test_guessed_tokens_count_with_the_run_that_ended_the_answer() -> None:
    told = usage(4, 2.0, 2.0, 14.0)
    reading = ended(told, token(0, 0), token(3, 3), token(0, 1))
    assert (reading.made, reading.wall) == (4, 6.0)
    agree(reading, told)


def test_an_answer_of_one_token_has_no_speed_to_tell() -> None:
    told = usage(1)
    reading = ended(told, token(0, 0))
    assert "0.0" not in str(speed(reading))
    agree(reading, told)


def test_a_meter_at_rest_shows_the_last_answer_of_its_chat_or_nothing() -> None:
    answer = Step("a", Turn("assistant", "x"), usage=usage(3, 5.0, 15.0), model=MODEL.name)
    meter = Meter()
    for last in (answer, Step("q", Turn("user", "x"))):
        meter.idle(resting(0, answer, last))
        assert meter.reading().made == (3 if last is answer else 0)
        assert meter.reading().steps == ((5.0, 15.0) if last is answer else ())
        assert meter.reading().tokens_per_s == (100.0 if last is answer else 0.0)


def test_the_speed_of_another_model_is_not_shown_as_this_one() -> None:
    answer = Step("a", Turn("assistant", "x"), usage=usage(3, 5.0, 15.0), model="another")
    meter = Meter()
    meter.idle(resting(0, answer))
    assert meter.reading().made == 0


def test_a_new_turn_begins_without_the_numbers_of_the_last() -> None:
    meter = Meter()
    meter.take(Batch(finished=Finished("stop", "", "", (), usage(3, 5.0, 15.0))))
    meter.begin()
    meter.take(Batch(tokens=[token(0, 0), token(9, 10)]))
    reading = meter.reading()
    assert (reading.made, reading.steps, reading.tokens_per_s) == (2, (10.0,), 100.0)


def looking(meter: Meter, *seen: VisionProgress) -> str:
    """What is said of pictures that are encoded."""
    for vision in seen:
        meter.take(Batch(vision=vision))
    progress = meter.reading().progress
    assert progress is not None
    return progress_rows(progress, 10).plain


def test_a_picture_takes_the_time_that_earlier_ones_took() -> None:
    now = [0.0]
    meter = Meter(clock=lambda: now[0])
    meter.idle(resting(0))
    meter.begin()
    meter.take(Batch(plan=PromptPlan(600, 0, 512, 2048)))
    assert looking(meter, VisionProgress(0, 1, 0, 512)) == "looking at the picture…"
    now[0] = 3.0
    assert looking(meter) == "looking at the picture… 3 s"
    now[0] = 5.12
    looking(meter, VisionProgress(1, 1, 512, 512))
    meter.begin()
    meter.take(Batch(plan=PromptPlan(600, 0, 512, 2048)))
    looking(meter, VisionProgress(0, 1, 0, 256))
    now[0] += 1.28
    said = looking(meter)
    assert said.startswith("looking at the picture 50% · 1.3 s left")
    assert "by the time of earlier ones" in said
    now[0] += 60
    assert "looking at the picture 99%" in looking(meter)


def test_how_long_pictures_take_is_known_from_a_chat_that_is_opened_again() -> None:
    timings = Timings(2_560.0, 1.0, 1.0, (), ())
    usage = Usage(300, 0, 256, 0, 1, 2048, 300, timings)
    picture = attachment("a.png", b"", 512, 512)
    question = Step("q", Turn("user", "", (picture,)))
    answer = Step("a", Turn("assistant", "x"), usage=usage, model=MODEL.name)
    meter = Meter(clock=lambda: 0.0)
    meter.idle(resting(0, question, answer))
    assert meter.vision_pace == {MODEL.name: 0.01}
