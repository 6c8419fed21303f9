"""Conversations over a stand-in for vLLM: what is asked, what comes, and what is told of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event, Finished, Notice, PromptPlan, Token
from q35chat.chat.text_files import with_files
from q35chat.chat.values import ChatSettings, Persona, SamplingSettings
from q35chat.chat.workspace import unkept
from q35chat.commands.personas import new_chat
from q35chat.endpoint.backend import ATTEMPTS, THINKS_ANEW, EndpointBackend
from q35chat.endpoint.choice import EndpointChoice, Secret
from q35chat.endpoint.network import Network
from q35chat.endpoint.server import find_out
from q35chat.errors import CapacityError, EndpointError, PictureError, Q35Error, UsageError
from q35chat.settings import PersonaEntry, Settings
from tests.doubles.fake_vllm import FakeVllm


@contextmanager
def opened(fake: FakeVllm, **choice: object) -> Iterator[EndpointBackend]:
    """The backend over `fake`, which waits for little before it tries again."""
    with fake.serving() as plain:
        chosen: EndpointChoice = replace(plain, **choice)  # type: ignore[arg-type]
        network = Network(chosen)
        try:
            server = find_out(network, chosen)
            yield EndpointBackend(chosen, network, server, first_pause_s=0.0)
        finally:
            network.close()


@contextmanager
def chatting(
    fake: FakeVllm, settings: ChatSettings | None = None, **choice: object
) -> Iterator[Conversation]:
    with opened(fake, **choice) as backend:
        yield unkept(backend, settings or ChatSettings(sampling=backend.sampling_defaults))


def refusal(status: int, message: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """What `FakeVllm` refuses a request with."""
    body = {"error": {"message": message, "type": "x", "param": None, "code": status}}
    return status, headers, json.dumps(body)


def finished(events: Iterator[Event]) -> Finished:
    last = list(events)[-1]
    assert isinstance(last, Finished)
    return last


def test_an_answer_is_what_was_streamed_with_the_counts_that_the_server_tells() -> None:
    fake = FakeVllm(thoughts=("Hm", ", yes."), cached=5)
    with chatting(fake) as chat:
        events = list(chat.send("Say hello to all of us"))
    plan, *_, end = events
    assert isinstance(plan, PromptPlan)
    assert isinstance(end, Finished)
    assert (end.text, end.reasoning, end.reason) == ("Hello there.", "Hm, yes.", "stop")
    assert plan.prompt_tokens == end.usage.prompt_tokens == 9
    assert (end.usage.completion_tokens, end.usage.reasoning_tokens) == (5, 2)
    assert (end.usage.reused_tokens, end.usage.capacity_used) == (5, 14)
    tokens = [event for event in events if isinstance(event, Token)]
    assert [token.made for token in tokens] == [1] * 5
    assert [token.wall_ms > 0 for token in tokens] == [False, True, True, True, True]
    assert tokens[-1].slots_free == 4096 - 14
    assert sum(end.usage.timings.wall_ms) == pytest.approx(sum(token.wall_ms for token in tokens))


def test_the_older_name_of_reasoning_is_read_too() -> None:
    fake = FakeVllm(thoughts=("Hm",))
    plain = fake.chunks

    def older(body: dict[str, object]) -> Iterator[dict[str, object]]:
        for chunk in plain(body):
            yield json.loads(json.dumps(chunk).replace('"reasoning"', '"reasoning_content"'))

    fake.chunks = older  # type: ignore[method-assign]
    with chatting(fake) as chat:
        assert finished(chat.send("Hello")).reasoning == "Hm"


def test_what_the_user_sets_is_what_is_asked() -> None:
    fake = FakeVllm()
    sampling = SamplingSettings(0.5, 10, 0.8, 0.1, 1.5, 1.2, seed=7)
    settings = ChatSettings(
        sampling, "Be brief.", thinking=True, thinking_budget=64, max_new_tokens=32, stop=("x",)
    )
    with chatting(fake, settings) as chat:
        finished(chat.send("Hello"))
    asked = fake.asked[0]
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
    ]  # fmt: skip
    names = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "repetition_penalty")
    assert [asked[name] for name in (*names, "seed")] == [0.5, 10, 0.8, 0.1, 1.5, 1.2, 7]
    assert (asked["max_tokens"], asked["stop"]) == (96, ["x"])
    assert asked["thinking_token_budget"] == 64
    assert asked["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_persona_of_the_settings_is_what_is_asked_with() -> None:
    fake = FakeVllm()
    entry = PersonaEntry("Translate into Chinese.", True, 64, {"temperature": 0.2})
    settings = Settings(system="Be brief.", persona={"translator": entry})
    with opened(fake) as backend:
        for name in ("translator", None):
            begun = new_chat(settings, backend.sampling_defaults, name)
            finished(unkept(backend, begun).send("Hello"))
    with_it, without = fake.asked
    assert with_it["messages"][0] == {"role": "system", "content": "Translate into Chinese."}
    assert (with_it["temperature"], with_it["thinking_token_budget"]) == (0.2, 64)
    assert without["messages"][0] == {"role": "system", "content": "Be brief."}
    assert without["temperature"] != 0.2


def test_another_persona_within_a_chat_counts_from_the_next_question_on() -> None:
    fake = FakeVllm()
    with chatting(fake) as chat:
        finished(chat.send("Hello"))
        chat.change_settings(Persona("pirate", "Arr.", thinking=False).over(chat.settings()))
        finished(chat.send("And you?"))
    assert [one["messages"][0]["role"] for one in fake.asked] == ["user", "system"]
    assert fake.asked[1]["messages"][0]["content"] == "Arr."
    assert fake.asked[1]["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_file_goes_out_as_text_and_is_counted_by_the_server(tmp_path: Path) -> None:
    path = tmp_path / "notes.py"
    path.write_text("x = 1\n", "utf-8")
    fake = FakeVllm()
    with chatting(fake) as chat:
        file = chat.read_file(path)
        question = with_files([file], "What is x?")
        plan, *_ = chat.send(question)
    assert isinstance(plan, PromptPlan)
    content = "File `notes.py`:\n\n```python\nx = 1\n```\n\nWhat is x?"
    assert fake.asked[0]["messages"] == [{"role": "user", "content": content}]
    assert plan.prompt_tokens == fake.tokens(fake.asked[0]["messages"])
    assert 0 < file.slots < plan.prompt_tokens


def test_earlier_reasoning_goes_out_under_both_of_its_names() -> None:
    fake = FakeVllm(thoughts=("Hm",))
    with chatting(fake) as chat:
        finished(chat.send("One"))
        finished(chat.send("Two"))
    answer = fake.asked[1]["messages"][1]
    assert answer == {
        "role": "assistant", "content": "Hello there.", "reasoning": "Hm", "reasoning_content": "Hm"
    }  # fmt: skip


def test_a_cut_stream_keeps_what_came_and_can_be_gone_on_with() -> None:
    fake = FakeVllm(cut_after=2)
    with chatting(fake) as chat:
        with pytest.raises(EndpointError, match=r"ended the connection|in the middle"):
            list(chat.send("Hello"))
        kept = chat.steps[-1]
        assert (kept.turn.text, kept.turn.finish) == ("Hello there", None)
        assert "ended" in kept.note
        fake.cut_after, fake.words = None, (" and", " here.")
        finished(chat.continue_answer())
        assert chat.steps[-1].turn.text == "Hello there and here."
    asked = fake.asked[1]
    assert asked["messages"][-1] == {"role": "assistant", "content": "Hello there"}
    assert asked["continue_final_message"] is True
    assert asked["add_generation_prompt"] is False


def test_thoughts_that_were_cut_are_thought_anew_and_it_is_said() -> None:
    fake = FakeVllm(thoughts=("Hm", " well"), cut_after=1)
    with chatting(fake) as chat:
        with pytest.raises(EndpointError):
            list(chat.send("Hello"))
        fake.cut_after = None
        events = list(chat.continue_answer())
    assert Notice(THINKS_ANEW) in events
    assert [message["role"] for message in fake.asked[1]["messages"]] == ["user"]


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_busy_server_is_asked_again_before_the_first_token(status: int) -> None:
    fake = FakeVllm(refusals=[refusal(status, "busy")] * (ATTEMPTS - 1))
    with chatting(fake) as chat:
        assert finished(chat.send("Hello")).text == "Hello there."
    assert len(fake.asked) == ATTEMPTS


def test_a_server_that_stays_busy_is_one_line_and_the_question_is_not_kept() -> None:
    busy = refusal(503, "no\nroom \x1b[31m now")
    with chatting(FakeVllm(refusals=[busy] * ATTEMPTS)) as chat:
        with pytest.raises(EndpointError, match=r"refuses \(HTTP 503\): no room") as caught:
            list(chat.send("Hello"))
        assert chat.steps == ()
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_wait_that_is_too_long_is_not_waited() -> None:
    later = refusal(503, "later", **{"Retry-After": "120"})
    fake = FakeVllm(refusals=[later])
    with chatting(fake) as chat, pytest.raises(EndpointError, match="later"):
        list(chat.send("Hello"))
    assert len(fake.asked) == 1


def test_a_connection_that_ends_before_the_first_token_is_made_again() -> None:
    fake = FakeVllm(cut_before_text=2)
    with chatting(fake) as chat:
        events = list(chat.send("Hello"))
    assert [isinstance(event, PromptPlan) for event in events].count(True) == 1
    assert len(fake.asked) == 3


def test_a_connection_that_ends_after_it_is_not() -> None:
    fake = FakeVllm(cut_after=1)
    with chatting(fake) as chat, pytest.raises(EndpointError):
        list(chat.send("Hello"))
    assert len(fake.asked) == 1


def test_a_prompt_that_is_too_long_is_a_capacity_error_with_the_servers_numbers() -> None:
    with chatting(FakeVllm(capacity=20)) as chat:
        with pytest.raises(CapacityError, match="maximum context length is 20 tokens"):
            list(chat.send("word " * 30))
        assert not chat.forecast("word " * 30).fits
        assert chat.forecast("word").fits
        assert chat.steps == ()


def test_a_stopped_turn_closes_the_connection_while_the_server_is_silent() -> None:
    fake = FakeVllm(held=threading.Event())
    with chatting(fake) as chat:
        events = []
        for event in chat.send("Hello"):
            events.append(event)
            if isinstance(event, Token):
                chat.cancel()
        assert fake.broken.wait(10)
    end = events[-1]
    assert isinstance(end, Finished)
    assert (end.reason, end.text) == ("cancelled", "Hello")
    assert chat.steps[-1].turn.text == "Hello"


def test_a_turn_that_nobody_consumes_any_more_closes_the_connection() -> None:
    fake = FakeVllm(held=threading.Event())
    with chatting(fake) as chat:
        events = chat.send("Hello")
        assert [type(next(events)) for _ in range(2)] == [PromptPlan, Token]
        del events
        assert fake.broken.wait(10)


def test_a_model_that_repeats_itself_is_stopped() -> None:
    fake = FakeVllm(words=("</think>", "\n") * 400)
    with chatting(fake) as chat:
        end = finished(chat.send("Hello"))
    assert end.reason == "loop"
    assert end.usage.completion_tokens < 200


def test_a_limit_of_tokens_and_the_end_of_the_room_are_told_apart() -> None:
    with chatting(FakeVllm(finish="length"), ChatSettings(max_new_tokens=3)) as chat:
        assert finished(chat.send("Hello")).reason == "length"
    with chatting(FakeVllm(finish="length", capacity=7)) as chat:
        assert finished(chat.send("Hello")).reason == "capacity"
    with chatting(FakeVllm(finish="content_filter")) as chat:
        events = list(chat.send("Hello"))
    assert Notice("the server ended it: content_filter") in events


def test_the_meters_know_the_server_its_room_and_how_busy_it_is() -> None:
    fake = FakeVllm()
    with opened(fake) as backend:
        model = backend.model
        assert (model.name, model.capacity, model.estimated) == ("qwen", 4096, False)
        assert model.remote.endswith("/v1")
        finished(unkept(backend, ChatSettings()).send("Hello"))
        backend._looking.wait()
        assert backend.model.load == "KV cache 37% used · 3 waiting"


def test_slots_that_a_server_does_not_count_are_estimated_and_said_to_be() -> None:
    fake = FakeVllm(counts=False)
    with opened(fake) as backend:
        assert backend.model.estimated
        chat = unkept(backend, ChatSettings())
        finished(chat.send("word " * 200))
        guess = chat.forecast("word " * 200)
        assert guess.fits
        assert 180 < guess.turn_slots < 230  # learned: a word is a token here
        assert chat.forecast("word " * 40_000).fits  # only the server can say that it does not


def test_a_capacity_that_nobody_tells_is_what_the_user_says_or_marked() -> None:
    with opened(FakeVllm(capacity=None)) as backend:
        assert backend.model.estimated
    with opened(FakeVllm(capacity=None), capacity=900) as backend:
        assert (backend.model.capacity, backend.model.estimated) == (900, False)


def test_a_count_that_cannot_be_is_shown_and_fills_no_memory() -> None:
    fake = FakeVllm()
    fake.usage = lambda *_: {  # type: ignore[method-assign]
        "prompt_tokens": 2**31 - 1, "completion_tokens": 2**31 - 1,
        "prompt_tokens_details": {"cached_tokens": 2**31 - 1},
    }  # fmt: skip
    with chatting(fake) as chat:
        usage = finished(chat.send("Hello")).usage
    assert usage.capacity_used == 4096
    assert len(usage.timings.wall_ms) < 100


def test_a_picture_is_sent_as_the_model_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.new("RGB", (2000, 1000), "red").save(path)
    fake = FakeVllm()
    with chatting(fake, ChatSettings(max_image_tokens=64)) as chat:
        picture = chat.attach(path)
        assert chat.forecast("What is it?", [picture]).image_slots == picture.tokens
        finished(chat.send("What is it?", [picture]))
    shown, text = fake.asked[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert shown["image_url"]["url"].startswith("data:image/png;base64,")
    assert 0 < picture.tokens <= 64


def test_the_key_goes_to_the_server_and_into_no_message() -> None:
    secret = Secret("sk-very-secret")
    echo = refusal(400, "bad key sk-very-secret in the request")
    fake = FakeVllm(key="sk-very-secret", refusals=[echo])
    with chatting(fake, key=secret, key_name="CLUSTER_KEY") as chat:
        with pytest.raises(EndpointError, match="bad key … in") as caught:
            list(chat.send("Hello"))
        assert "sk-very" not in f"{caught.value!r} {caught.value} {secret!r}"
        finished(chat.send("Hello"))
    assert fake.headers[1]["Authorization"] == "Bearer sk-very-secret"


def test_a_wrong_key_names_where_it_is_to_be_mended() -> None:
    fake = FakeVllm(key="right")
    with (
        pytest.raises(EndpointError, match="check the key in CLUSTER_KEY") as caught,
        opened(fake, key=Secret("wrong"), key_name="CLUSTER_KEY"),
    ):
        pass
    assert "wrong" not in str(caught.value)
    with pytest.raises(EndpointError, match="wants a key"), opened(FakeVllm(key="right")):
        pass


def test_a_model_that_the_server_has_not_is_refused_with_those_it_has() -> None:
    wanted = pytest.raises(UsageError, match="has no model 'other'; it has qwen")
    with wanted, opened(FakeVllm(), model="other"):
        pass


def test_a_server_that_is_not_there_is_one_line() -> None:
    with FakeVllm().serving() as choice:
        pass
    with pytest.raises(Q35Error, match=r"cannot reach 127\.0\.0\.1:") as caught:
        EndpointBackend.open(choice)
    assert "\n" not in str(caught.value)


def test_a_picture_for_a_server_that_sees_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.new("RGB", (64, 64), "red").save(path)
    fake = FakeVllm(sees=False)
    with opened(fake) as backend:
        assert not backend.model.pictures
        with pytest.raises(PictureError, match=r"photo\.png cannot be shown .* sees none"):
            backend.attach(path, 64)


def test_slots_are_estimated_while_the_server_does_not_answer_for_them() -> None:
    fake = FakeVllm()
    with opened(fake) as backend:
        chat = unkept(backend, ChatSettings())
        fake.counts = False
        assert chat.forecast("one two three").fits
        assert backend.model.estimated
