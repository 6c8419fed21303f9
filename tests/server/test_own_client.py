"""Our own screen's backend over our own server: what the one says is what the other shows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from q35chat.chat.events import Event, Finished, PromptPlan
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import unkept
from q35chat.endpoint.backend import EndpointBackend
from q35chat.endpoint.choice import EndpointChoice, read_address
from q35chat.errors import CapacityError
from q35chat.server.app import application
from q35chat.server.gate import Rules
from q35chat.server.service import Service
from tests.doubles.chat_model import END, GREEDY, UNTHINK, ChatModel, user


@pytest.fixture
def backend(service: Service) -> Iterator[EndpointBackend]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(application(service, Rules()), lifespan="off", log_config=None)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    opened = EndpointBackend.open(EndpointChoice(read_address(f"http://127.0.0.1:{port}/v1")))
    yield opened
    opened.close()
    server.should_exit = True
    thread.join()


def whole(events: Iterator[Event]) -> tuple[PromptPlan, Finished]:
    first, *_, last = events
    assert isinstance(first, PromptPlan)
    assert isinstance(last, Finished)
    return first, last


def test_the_model_is_known_by_name_room_and_count(
    backend: EndpointBackend, model: ChatModel
) -> None:
    told = backend.model
    assert (told.name, told.capacity, told.pictures) == ("tests/numpy", 2048, True)
    assert not told.estimated
    question = [user("the red picture")]
    assert backend.plan(question, GREEDY) == model.engine.plan(question, GREEDY)


def test_an_answer_is_the_same_as_on_the_machine_itself(
    backend: EndpointBackend, model: ChatModel
) -> None:
    thinking = ChatSettings(sampling=GREEDY.sampling, thinking=True)
    ids = (*model.ids("the"), UNTHINK, *model.ids(" red"), END)
    model.say([user("Hello")], *ids, settings=thinking)
    here = model.finish([user("Hello")], thinking)
    plan, there = whole(unkept(backend, thinking).send("Hello"))
    assert (there.text, there.reasoning, there.reason) == (here.text, here.reasoning, here.reason)
    assert there.usage.prompt_tokens == plan.prompt_tokens == here.usage.prompt_tokens
    assert there.usage.completion_tokens == here.usage.completion_tokens
    assert there.usage.reasoning_tokens == here.usage.reasoning_tokens


def test_a_follow_up_tells_what_it_reused(backend: EndpointBackend) -> None:
    chat = unkept(backend, ChatSettings(sampling=GREEDY.sampling, max_new_tokens=4))
    whole(chat.send("word " * 200))
    _, second = whole(chat.send("and?"))
    assert second.usage.reused_tokens > second.usage.prompt_tokens * 0.9


def test_an_answer_that_was_cut_goes_on_where_it_was(backend: EndpointBackend) -> None:
    short = ChatSettings(sampling=GREEDY.sampling, max_new_tokens=4)
    chat = unkept(backend, short)
    _, first = whole(chat.send("Hello"))
    _, second = whole(chat.continue_answer())
    at_once = unkept(backend, ChatSettings(sampling=GREEDY.sampling, max_new_tokens=8))
    assert first.text + second.text == whole(at_once.send("Hello"))[1].text


def test_a_question_without_room_is_refused_by_its_numbers(backend: EndpointBackend) -> None:
    with pytest.raises(CapacityError, match="2,048") as caught:
        whole(unkept(backend, GREEDY).send("word " * 3000))
    assert str(caught.value).count("shorten") == 1
