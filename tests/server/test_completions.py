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
    for field in ("echo", "suffix"):
        assert asking.post(PATH, {"prompt": "a", field: "b"}, 400)["error"]["param"] == field


def test_the_same_text_again_is_not_read_again(asking: Asking) -> None:
    body = {"prompt": "the red picture and " * 40, "max_tokens": 2, **GREEDY}
    asking.post(PATH, body)
    usage = asking.post(PATH, body)["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] - cached == 1
