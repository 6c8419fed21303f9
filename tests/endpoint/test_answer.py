"""What servers say, in every form they say it in, and in none."""

from __future__ import annotations

import json

import pytest

from q35chat.endpoint.answer import Part, ReadingProgress, TokenCounts, error_of, part_of
from q35chat.endpoint.network import Reply
from q35chat.endpoint.server import load_words
from q35chat.endpoint.turn import spread
from q35chat.errors import CapacityError, EndpointError


def told(value: object) -> str:
    return json.dumps({"choices": [{"delta": value}]})


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (told({"content": "a"}), Part(text="a")),
        (told({"reasoning": "a", "content": None}), Part(reasoning="a")),
        (told({"reasoning_content": "a"}), Part(reasoning="a")),
        (told({"reasoning": "a", "reasoning_content": "a"}), Part(reasoning="a")),
        (told({"content": "\ud800"}), Part(text="?")),
        ('{"choices": [{"finish_reason": "stop"}]}', Part(finish="stop")),
        ('{"choices": []}', Part()),
        ("{}", Part()),
        (
            (
                '{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, '
                '"prompt_tokens_details": {"cached_tokens": 2}, '
                '"completion_tokens_details": {"reasoning_tokens": 1}}}'
            ),
            Part(counts=TokenCounts(3, 4, 2, 1)),
        ),
        ('{"usage": {"prompt_tokens_details": null}}', Part(counts=TokenCounts())),
        (
            '{"prompt_progress": {"total": 90, "cache": 10, "processed": 50, "time_ms": 8}}',
            Part(progress=ReadingProgress(40, 80, 8.0)),
        ),
    ],
)
def test_a_part_is_what_the_event_says(data: str, part: Part) -> None:
    assert part_of(data, "host") == part


@pytest.mark.parametrize(
    "data",
    [
        "nothing", "[]", "1", '{"choices": 1}', '{"choices": [1]}', told(1), told({"content": 1}),
        '{"usage": 1}', '{"usage": {"prompt_tokens": -1}}', '{"usage": {"prompt_tokens": 1e99}}',
        '{"usage": {"completion_tokens": true}}', "[" * 9000, '{"error": {"message": "broken"}}',
        '{"error": "broken"}', '{"prompt_progress": {"time_ms": -1}}',
    ],
)  # fmt: skip
def test_what_is_no_part_is_one_line(data: str) -> None:
    with pytest.raises(EndpointError) as caught:
        part_of(data, "host")
    assert str(caught.value).startswith("host")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, '{"error": {"message": "bad", "type": "x", "code": 400}}', "(HTTP 400): bad"),
        (400, '{"object": "error", "message": "bad", "code": 400}', "(HTTP 400): bad"),
        (422, '{"detail": [{"msg": "bad"}]}', '(HTTP 422): [{"msg": "bad"}]'),
        (404, "<html>\n<b>not here</b>", "(HTTP 404): <html> <b>not here</b>"),
        (500, "", "(HTTP 500): no reason given"),
        (500, "x" * 9000, "xxx…"),
        (307, "", "sends the request elsewhere"),
    ],
)
def test_a_refusal_is_one_line_in_whatever_form_it_comes(status: int, body: str, said: str) -> None:
    error = error_of(Reply(status, body.encode()), "host", "")
    assert said in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            {"type": "exceed_context_size_error", "message": "x", "n_prompt_tokens": 4170,
             "n_ctx": 4096},
            "prompt needs 4,170 slots, host has 4,096",
        ),
        ({"code": "context_length_exceeded", "message": "too long."}, "no room for it: too long:"),
        ({"code": 400, "message": "maximum context length is 9 tokens"}, "length is 9 tokens"),
    ],
)  # fmt: skip
def test_a_prompt_that_has_no_room_is_told_from_other_refusals(
    error: dict[str, object], said: str
) -> None:
    found = error_of(Reply(400, json.dumps({"error": error}).encode()), "host", "")
    assert isinstance(found, CapacityError)
    assert said in str(found)


def test_a_server_that_advises_is_not_advised_behind() -> None:
    said = "maximum context length is 9 tokens. Please reduce the length of the messages."
    found = error_of(Reply(400, json.dumps({"error": {"message": said}}).encode()), "host", "")
    assert str(found) == f"host has no room for it: {said.rstrip('.')}"


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ("vllm:gpu_cache_usage_perc 0.5\n", "KV cache 50% used"),
        (
            'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.25\n',
            "KV cache 25% used",
        ),
        (
            'sglang:token_usage{a="b c"} 0\nsglang:num_queue_reqs 2\n',
            "KV cache 0% used · 2 waiting",
        ),
        ("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_waiting 0.0\n", ""),
        ("vllm:kv_cache_usage_perc 7\n", ""),
        ("vllm:kv_cache_usage_perc 1e-e\nvllm:num_requests_waiting 1e99\n", ""),
        ("<html>", ""),
    ],
)
def test_how_busy_a_server_is_comes_from_its_metrics(metrics: str, words: str) -> None:
    assert load_words(metrics) == words


def test_times_between_arrivals_are_shared_by_the_tokens_that_arrived() -> None:
    assert spread([(2.0, 1), (6.0, 2)], 3) == (2.0, 3.0, 3.0)
    assert spread([(2.0, 1), (6.0, 1)], 4) == (1.0, 1.0, 3.0, 3.0)
    assert spread([(2.0, 1), (6.0, 1)], 1) == (8.0,)
    assert spread([], 4) == spread([(1.0, 1)], 0) == ()
