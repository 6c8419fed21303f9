from __future__ import annotations

from typing import Any

from q35chat.states.memory import MemoryPool
from tests.doubles.chat_model import END, ChatModel
from tests.server.asking import GREEDY, Asking

PATH = "/v1/chat/completions"


class Client:
    """A conversation that sends its whole history each time, as text."""

    def __init__(self, asking: Asking, first: str) -> None:
        self._asking = asking
        self._messages: list[dict[str, Any]] = []
        self._first = first

    def ask(self, text: str = "") -> tuple[int, int]:
        """Tokens of the prompt, and those of them that were read for it."""
        self._messages.append({"role": "user", "content": text or self._first})
        body = {"messages": self._messages, "max_tokens": 4, **GREEDY}
        answer = self._asking.post(PATH, body)
        self._messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return usage["prompt_tokens"], usage["prompt_tokens"] - cached


def long(word: str) -> str:
    """A text of more than 1,400 tokens."""
    return f"{word} " + "the red picture and " * 352


def test_a_follow_up_reads_only_what_is_new(asking: Asking) -> None:
    client = Client(asking, long("Hello"))
    total, read = client.ask()
    assert total == read > 1400
    total, read = client.ask("and")
    assert read * 20 <= total


def test_clients_that_alternate_pay_no_more_than_one_alone(asking: Asking) -> None:
    clients = [Client(asking, long("Hello")), Client(asking, long("user"))]
    for client in clients:
        assert client.ask()[0] > 1400
    for _ in range(2):
        for client in clients:
            total, read = client.ask("and")
            assert read * 20 <= total


def test_states_beyond_the_limit_go_oldest_first(asking: Asking, pool: MemoryPool) -> None:
    first, second = Client(asking, long("Hello")), Client(asking, long("user"))
    first.ask()
    second.ask()
    one = pool.nbytes
    assert one > 0
    pool.limit = one
    Client(asking, long("system")).ask()
    assert 0 < pool.nbytes <= one
    total, read = first.ask("and")
    assert read > total // 2


def test_an_answer_that_was_cut_is_gone_on_with_from_its_state(
    asking: Asking, model: ChatModel
) -> None:
    client = Client(asking, long("Hello"))
    client.ask()
    _, read = client.ask("the")
    assert read < 60
    assert END not in model.ids("the")


def test_a_tool_call_sent_back_is_matched_by_its_own_tokens(
    asking: Asking, model: ChatModel
) -> None:
    written = '<tool_call>{"name": "now",  "arguments": {}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "now"}}]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": long("Hello")}], **GREEDY}
    prompt = asking.post("/tokenize", {**body, "tools": tools})["count"]
    ids = (*model.ids(written), END)
    model.text.says = {prompt - 1 + place: token for place, token in enumerate(ids)}
    first = asking.post(PATH, {**body, "tools": tools})["choices"][0]
    assert first["finish_reason"] == "tool_calls"
    (call,) = first["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "12:00"}
    body["messages"] += [first["message"], result]
    model.text.says = {}
    usage = asking.post(PATH, {**body, "tools": tools, "max_tokens": 1})["usage"]
    read = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert read < 40
