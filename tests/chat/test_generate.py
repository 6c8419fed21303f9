from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.events import (
    Event,
    Finished,
    Notice,
    PrefillProgress,
    Token,
    VisionProgress,
    shared_times,
)
from q35chat.chat.values import SamplingSettings
from q35chat.errors import CapacityError, PictureError, RuntimeFailure
from tests.doubles.chat_model import (
    END,
    GREEDY,
    UNTHINK,
    ChatModel,
    answered,
    picture,
    tokens,
    user,
)

HELLO = [user("Hello")]
THINKING = replace(GREEDY, thinking=True)
TIMES = st.lists(st.tuples(st.floats(0, 100), st.sampled_from([0.0, 5.0, 30.0])))


def stop_after(count: int) -> Callable[[], bool]:
    """Says stop from the `count`-th time it is asked on."""
    asked = iter(range(count))
    return lambda: next(asked, None) is None


def kinds(events: list[Event]) -> list[str]:
    names = [type(event).__name__ for event in events]
    return [name for place, name in enumerate(names) if names[place - 1 : place] != [name]]


def test_events_come_in_order_and_their_texts_are_the_answer(model: ChatModel) -> None:
    turns = [user("Look", picture(64, 64), picture(64, 96, "blue"))]
    model.say(turns, *model.ids("the picture。"), END)

    events = model.run(turns)

    assert kinds(events) == ["PromptPlan", "VisionProgress", "PrefillProgress", "Token", "Finished"]
    assert "".join(token.text for token in tokens(events)) == "the picture。"
    finished = model.finish(turns)
    assert (finished.reason, finished.text, finished.reasoning) == ("stop", "the picture。", "")
    assert finished.token_ids == (*model.ids("the picture。"), END)


def test_the_plan_is_exact(model: ChatModel) -> None:
    turns = [user("Look", picture(64, 96))]
    planned = model.engine.plan(turns, GREEDY)
    model.say(turns, END)

    events = model.run(turns)

    assert events[0] == planned
    assert planned.image_tokens == 6
    assert model.finish(turns).usage.prompt_tokens == planned.prompt_tokens
    assert planned.slots_free == 512 - planned.prompt_tokens


def test_progress_covers_pictures_and_tokens(model: ChatModel) -> None:
    turns = [user("Look", picture(64, 64), picture(64, 64), picture(64, 64, "blue"))]
    model.say(turns, END)

    events = model.run(turns)

    vision = [event for event in events if isinstance(event, VisionProgress)]
    prefill = [event for event in events if isinstance(event, PrefillProgress)]
    assert [(step.done, step.total) for step in vision] == [(0, 2), (1, 2), (2, 2)]
    assert prefill[-1].done == prefill[-1].total == model.engine.plan(turns, GREEDY).prompt_tokens
    assert all(step.tokens_per_s > 0 for step in prefill)


def test_special_tokens_and_half_characters_are_tokens_without_text(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("🐈<|im_start|>"), END)

    assert [token.text for token in tokens(model.run(HELLO))] == ["", "", "", "🐈", ""]


def test_any_stop_id_of_the_list_ends_the_answer(model: ChatModel) -> None:
    end_of_text = model.ids("<|endoftext|>")[0]
    model.say(HELLO, *model.ids("a"), end_of_text, *model.ids("b"))

    finished = model.finish(HELLO)

    assert (finished.reason, finished.text) == ("stop", "a")
    assert finished.token_ids == (*model.ids("a"), end_of_text)
    assert finished.usage.completion_tokens == 2


def test_a_stop_string_ends_the_answer_before_it(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("one, two, three"))

    events = model.run(HELLO, replace(GREEDY, stop=(", t",)))

    assert "".join(token.text for token in tokens(events)) == "one"


def test_text_held_back_is_released_without_an_id(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("one,"), END)

    events = model.run(HELLO, replace(GREEDY, stop=(", t",)))

    last = [*tokens(events)][-1]
    assert (last.id, last.text) == (None, ",")


@pytest.mark.parametrize("limit", [1, 3])
def test_the_answer_has_a_limit(model: ChatModel, limit: int) -> None:
    model.say(HELLO, *model.ids("abcdef"))

    finished = model.finish(HELLO, replace(GREEDY, max_new_tokens=limit))

    assert (finished.reason, finished.text) == ("length", "abcdef"[:limit])
    assert finished.usage.capacity_used == finished.usage.prompt_tokens + limit - 1


def test_at_capacity_the_last_slot_is_used_and_the_text_kept(
    processor: Path, model: ChatModel
) -> None:
    needed = model.engine.plan(HELLO, GREEDY).prompt_tokens
    small = ChatModel(processor, capacity=needed + 3)
    small.say(HELLO, *small.ids("abcdefgh"))

    finished = small.finish(HELLO)

    assert (finished.reason, finished.text) == ("capacity", "abcd")
    assert finished.usage.capacity_used == finished.usage.capacity_total == needed + 3
    assert finished.usage.capacity_free == 0


def test_a_prompt_that_fills_every_slot_still_gives_one_token(
    processor: Path, model: ChatModel
) -> None:
    small = ChatModel(processor, capacity=model.engine.plan(HELLO, GREEDY).prompt_tokens)
    small.say(HELLO, *small.ids("abc"))

    finished = small.finish(HELLO)

    assert (finished.reason, finished.text) == ("capacity", "a")


def test_a_prompt_over_the_capacity_is_refused_before_anything_runs(processor: Path) -> None:
    small = ChatModel(processor, capacity=20)
    turns = [user("Hello, here are some words", picture(64, 96))]
    needed = small.engine.plan(turns, GREEDY).prompt_tokens

    with pytest.raises(CapacityError) as error:
        small.run(turns)

    assert str(error.value).startswith(f"prompt needs {needed} slots (6 for pictures), capacity 20")
    assert (small.text.runs, small.vision.pictures) == ([], 0)


def test_without_pictures_the_refusal_does_not_name_them(processor: Path) -> None:
    with pytest.raises(CapacityError, match=r"^prompt needs \d+ slots, capacity 10: shorten it or"):
        ChatModel(processor, capacity=10).run(HELLO)


def test_a_stop_between_steps_keeps_what_was_said(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("abcdef"))
    stop = threading.Event()
    shown = ""
    for event in model.engine.run(HELLO, GREEDY, stop.is_set):
        if isinstance(event, Token):
            shown += event.text
        if shown == "abc":
            stop.set()

    assert isinstance(event, Finished)
    assert (event.reason, event.text, shown) == ("cancelled", "abc", "abc")


def test_a_stop_while_reading_ends_the_turn_without_a_token(processor: Path) -> None:
    model = ChatModel(processor, capacity=1024)
    turns = [user("word " * 100)]
    model.say(turns, END)

    finished = model.finish(turns, should_stop=stop_after(2))

    assert (finished.reason, finished.token_ids) == ("cancelled", ())
    read = finished.usage.capacity_used
    assert 0 < read < finished.usage.prompt_tokens
    assert model.engine.plan(turns, GREEDY).reused_tokens == read
    again = model.finish(turns)
    assert (again.reason, again.usage.reused_tokens) == ("stop", read)


def test_a_stop_between_pictures_reads_no_text(model: ChatModel) -> None:
    turns = [user("Look", picture(64, 64), picture(64, 64, "blue"))]

    finished = model.finish(turns, should_stop=stop_after(1))

    assert finished.reason == "cancelled"
    assert (model.vision.pictures, model.text.runs) == (1, [])


def test_closing_the_events_anywhere_leaves_a_state_to_go_on_from(processor: Path) -> None:
    turns = [user("Look", picture(64, 64))]
    expected = ChatModel(processor).finish(turns, replace(GREEDY, max_new_tokens=8)).token_ids
    model = ChatModel(processor)
    settings = replace(GREEDY, max_new_tokens=8)
    for count in range(1, 14):
        events = model.engine.run(turns, settings, lambda: False)
        for _ in range(count):
            next(events, None)
        events.close()  # type: ignore[attr-defined]

        assert model.finish(turns, settings).token_ids == expected


def test_a_graph_that_fails_leaves_a_state_to_go_on_from(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("abc"), END)
    expected = model.finish(HELLO)
    model.text.before_run = failing

    with pytest.raises(RuntimeFailure):
        model.run([*HELLO, answered(expected), user("more")])
    model.text.before_run = lambda: None

    assert model.finish(HELLO).token_ids == expected.token_ids


def failing() -> None:
    raise RuntimeFailure("the graph failed")


def test_reasoning_and_answer_are_told_apart(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("so\n</think>\n\nred"), END, settings=THINKING)

    events = model.run(HELLO, THINKING)
    finished = model.finish(HELLO, THINKING)

    assert (finished.reasoning, finished.text) == ("so", "red")
    assert finished.usage.reasoning_tokens == 4
    shown = dict.fromkeys(("reasoning", "answer"), "")
    for token in tokens(events):
        shown[token.kind] += token.text
    assert shown == {"reasoning": "so", "answer": "red"}


def test_a_thinking_budget_closes_the_thought_and_an_answer_follows(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("abc"), settings=THINKING)
    settings = replace(THINKING, thinking_budget=3, max_new_tokens=4)

    events = model.run(HELLO, settings)
    finished = model.finish(HELLO, settings)

    closing = [*model.ids("\n"), UNTHINK, *model.ids("\n\n")]
    assert [*finished.token_ids[:7]] == [*model.ids("abc"), *closing]
    assert (finished.reasoning, finished.reason) == ("abc", "length")
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert notices == ["thinking stopped after 3 tokens: its budget is used"]


def test_reasoning_does_not_eat_the_answers_limit(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("abcdef</think>xyz"), settings=THINKING)

    finished = model.finish(HELLO, replace(THINKING, max_new_tokens=2))

    assert (finished.reasoning, finished.text, finished.reason) == ("abcdef", "xy", "length")


def test_a_loop_ends_the_thought_first_and_the_answer_second_and_each_is_said_once(
    model: ChatModel,
) -> None:
    letters = model.ids("a")
    model.say(HELLO, *letters * 500, settings=THINKING)
    events = model.run(HELLO, THINKING)
    finished = model.finish(HELLO, THINKING)

    notices = [event.text for event in events if isinstance(event, Notice)]
    assert finished.reason == "loop"
    assert [notice.split(" after")[0] for notice in notices] == ["thinking stopped"]
    assert finished.usage.reasoning_tokens < 140


def test_the_loop_guard_can_be_off(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("a") * 400, END)

    finished = model.finish(HELLO, replace(GREEDY, loop_guard=False))

    assert (finished.reason, finished.text) == ("stop", "a" * 400)


def test_both_clocks_are_kept_for_every_step(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("abcd"), END)

    events = model.run(HELLO)
    timings = model.finish(HELLO).usage.timings

    assert len(timings.predict_ms) == len(timings.wall_ms) == 4
    assert all(
        0 < predict <= wall
        for predict, wall in zip(timings.predict_ms, timings.wall_ms, strict=True)
    )
    assert timings.first_token_ms >= timings.prefill_ms > 0
    first, *others = tokens(events)
    assert (first.predict_ms, first.wall_ms) == (0.0, 0.0)
    assert all(token.wall_ms > 0 for token in others)


def test_seeded_runs_repeat(processor: Path) -> None:
    settings = replace(GREEDY, sampling=SamplingSettings(seed=7), max_new_tokens=12)
    runs = [ChatModel(processor).finish(HELLO, settings).token_ids for _ in range(2)]
    other = replace(settings, sampling=SamplingSettings(seed=8))

    assert runs[0] == runs[1] != ChatModel(processor).finish(HELLO, other).token_ids


def test_penalties_count_the_prompt_once_and_what_was_said(processor: Path) -> None:
    model = ChatModel(processor)
    plain = replace(GREEDY, max_new_tokens=20)
    sampling = SamplingSettings(temperature=0.0, repetition_penalty=50.0)

    penalised = model.finish(HELLO, replace(plain, sampling=sampling)).token_ids

    assert len({*penalised}) == 20
    assert not {*penalised} & {*np.unique(model.engine.tokenizer.encode("user assistant Hello"))}


def test_a_bundle_without_a_vision_graph_refuses_pictures_only(processor: Path) -> None:
    model = ChatModel(processor, with_vision=False)
    model.say(HELLO, END)

    assert model.finish(HELLO).reason == "stop"
    with pytest.raises(PictureError, match="no vision graph"):
        model.run([user("Look", picture(64, 64))])


def test_a_loop_that_began_before_the_answer_was_cut_is_seen(model: ChatModel) -> None:
    model.say(HELLO, *model.ids("a") * 500)
    cut = model.finish(HELLO, replace(GREEDY, max_new_tokens=100))

    finished = model.finish([*HELLO, answered(cut)])

    assert (cut.reason, finished.reason) == ("length", "loop")
    assert finished.usage.completion_tokens < 100


def test_tokens_of_one_run_share_its_time() -> None:
    predict = [20.0, 50.0, 0.0, 0.0, 20.0, 0.0]

    assert shared_times(predict, predict) == pytest.approx(
        (20.0, 50 / 3, 50 / 3, 50 / 3, 10.0, 10.0)
    )
    assert shared_times([21, 53, 1, 0, 22, 0], predict) == pytest.approx((21, 18, 18, 18, 11, 11))


@given(TIMES)
def test_no_time_is_lost(steps: list[tuple[float, float]]) -> None:
    wall, predict = [wall for wall, _ in steps], [predict for _, predict in steps]

    assert len(shared_times(wall, predict)) == len(wall)
    assert sum(shared_times(wall, predict)) == pytest.approx(sum(wall))
    assert shared_times(wall, [1.0] * len(wall)) == tuple(wall)
