from __future__ import annotations

from tests.doubles.chat_model import END, PICTURE, ChatModel
from tests.server.asking import GREEDY, Asking

PATH = "/v1/completions"


def test_a_text_goes_on_without_a_template(asking: Asking, model: ChatModel) -> None:
    prompt, answer = model.ids("Hello"), (*model.ids(" the red"), END)
    model.text.says = {len(prompt) - 1 + place: token for place, token in enumerate(answer)}
    for given in ("Hello", ["Hello"], prompt, [prompt]):
        told = asking.post(PATH, {"prompt": given, **GREEDY, "logprobs": 2})
        (choice,) = told["choices"]
        assert (choice["text"], choice["finish_reason"]) == (" the red", "stop")
        assert told["usage"]["prompt_tokens"] == len(prompt)
        assert "".join(choice["logprobs"]["tokens"]) == " the red"
        assert max(choice["logprobs"]["text_offset"]) < len(" the red")
    chunks = asking.chunks(PATH, {"prompt": "Hello", **GREEDY})
    assert "".join(one["choices"][0]["text"] for one in chunks) == " the red"


def test_sixteen_tokens_are_written_where_nothing_is_said(asking: Asking) -> None:
    told = asking.post(PATH, {"prompt": "Hello", "seed": 1, "temperature": 5.0})
    assert told["usage"]["completion_tokens"] <= 16


def test_what_is_no_text_is_refused(asking: Asking) -> None:
    for prompt in ("", [], ["a", "b"], [-1], [10**9], [PICTURE], [[1], [2]], {"a": 1}, None):
        assert asking.post(PATH, {"prompt": prompt}, 400)["error"]["message"]
    assert asking.post(PATH, {"prompt": "a", "suffix": "b"}, 400)["error"]["param"] == "suffix"


def test_the_same_text_again_is_not_read_again(asking: Asking) -> None:
    body = {"prompt": "the red picture and " * 40, "max_tokens": 2, **GREEDY}
    asking.post(PATH, body)
    usage = asking.post(PATH, body)["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] - cached == 1


def test_an_echoed_prompt_is_as_likely_as_when_it_was_written(
    asking: Asking, model: ChatModel
) -> None:
    prompt, answer = model.ids("the red picture"), model.ids(" and the red")
    model.text.says = {len(prompt) - 1 + place: token for place, token in enumerate(answer)}
    asked = {"prompt": prompt, **GREEDY, "max_tokens": len(answer), "logprobs": 2}
    written = asking.post(PATH, asked)
    odds = written["choices"][0]["logprobs"]
    whole = "the red picture and the red"
    assert model.ids(whole) == [*prompt, *answer]
    told = asking.post(PATH, {"prompt": whole, "echo": True, "max_tokens": 0, "logprobs": 2})
    (choice,) = told["choices"]
    count = len(odds["tokens"])
    assert (choice["text"], choice["finish_reason"]) == (whole, "length")
    assert told["usage"]["completion_tokens"] == 0
    assert told["usage"]["prompt_tokens"] == len(choice["logprobs"]["tokens"])
    assert choice["logprobs"]["token_logprobs"][0] is choice["logprobs"]["top_logprobs"][0] is None
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert choice["logprobs"][name][-count:] == odds[name]
    places = zip(choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"], strict=True)
    assert all(whole[place:].startswith(name) for place, name in places)
    assert asking.post(PATH, asked)["choices"] == written["choices"]


def test_an_echo_is_streamed_before_what_is_written(asking: Asking, model: ChatModel) -> None:
    for prompt in ("Hello", model.ids("Hello")):
        for weighed in ({}, {"logprobs": 0}):
            body = {"prompt": prompt, "echo": True, "max_tokens": 2, **GREEDY, **weighed}
            (whole,) = asking.post(PATH, body)["choices"]
            parts = [one["choices"][0] for one in asking.chunks(PATH, body)]
            assert parts[0]["text"] == "Hello"
            assert "".join(part["text"] for part in parts) == whole["text"]
            for name in ("token_logprobs", "text_offset") if weighed else ():
                told = [one for part in parts if part["logprobs"] for one in part["logprobs"][name]]
                assert told == whole["logprobs"][name]
