from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from q35chat.chat.events import Event, Finished
from q35chat.chat.turn import reading
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from tests.chat.actions import ACTIONS, Action, User, WatchedBackend
from tests.doubles.chat_model import END, ChatModel, never
from tests.doubles.scripted_backend import Reply, ScriptedBackend, echo

ENDS_EVERY = 9  # slots: many answers end by themselves, others at their limit


def short(turns: Sequence[Turn]) -> Reply:
    reply = echo(turns)
    return Reply(reply.answer[-12:], reply.reasoning[:6])


class CheckedBackend(WatchedBackend):
    """An engine whose every answer is compared with one that reads everything from the start."""

    def __init__(self, engine: ChatModel, scratch: ChatModel) -> None:
        super().__init__(engine.engine)
        self._scratch = scratch
        self.reused = 0

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        for event in super().run(turns, settings, should_stop):
            if isinstance(event, Finished):
                self._compare(turns, settings, event)
            yield event

    def _compare(self, turns: Sequence[Turn], settings: ChatSettings, found: Finished) -> None:
        self._scratch.engine._model.decoder.reset()
        expected = self._scratch.finish(turns, settings, never)
        assert expected.usage.reused_tokens == 0
        assert found.token_ids == expected.token_ids[: len(found.token_ids)]
        if found.reason != "cancelled":
            assert (found.reason, found.text) == (expected.reason, expected.text)
            assert found.reasoning == expected.reasoning
        self.reused += found.usage.reused_tokens


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(ACTIONS, min_size=12, max_size=24), st.sampled_from([140, 420]))
def test_whatever_the_user_does_the_store_reopens_as_the_conversation_is(
    actions: list[Action], capacity: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        backend = ScriptedBackend(short, capacity=capacity)
        user = User(Path(folder), backend, ChatSettings())
        for action in actions:
            user.do(action)


@settings(
    derandomize=True,
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(ACTIONS, min_size=10, max_size=20), st.sampled_from([0, 3_000, 1 << 30]))
def test_whatever_the_user_does_the_answers_are_those_of_reading_everything(
    processor: Path, actions: list[Action], snapshot_bytes: int
) -> None:
    engine = ChatModel(processor, snapshot_bytes=snapshot_bytes)
    scratch = ChatModel(processor, snapshot_bytes=0)
    engine.text.says = scratch.text.says = dict.fromkeys(range(0, 512, ENDS_EVERY), END)
    backend = CheckedBackend(engine, scratch)
    sampling = SamplingSettings(temperature=1.0, seed=11)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(reading, "PART", 2):
        user = User(Path(folder), backend, ChatSettings(sampling=sampling, max_new_tokens=8))
        for action in actions:
            user.do(action)
