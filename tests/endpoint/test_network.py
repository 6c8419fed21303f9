"""Servers that misbehave: every one of them ends in one line, in time and within limits."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from q35chat.endpoint.network import MOST_BYTES, MOST_EVENT_BYTES, Network, Reply
from q35chat.errors import EndpointError
from tests.doubles.raw_server import STREAM, Say, endlessly, raw_server, saying, silent

SOON, LATE = 0.3, 60.0


@contextmanager
def connected(say: Say, silence_s: float = LATE) -> Iterator[tuple[Network, str]]:
    with raw_server(say) as choice:
        network = Network(choice, silence_s=silence_s)
        try:
            yield network, choice.address.base
        finally:
            network.close()


def never() -> bool:
    return False


@pytest.mark.parametrize(
    ("say", "said"),
    [
        (endlessly(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n"), "ended the connection"),
        (endlessly(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096), "ended the connection"),
        (endlessly(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536), "sends more than 4.0 MiB"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"), "ended the connection"),
        (saying(b"SSH-2.0-OpenSSH_9.6\r\n"), "ended the connection"),
        (saying(b""), "ended the connection"),
    ],
)
def test_an_answer_that_does_not_come_right_is_one_line(say: Say, said: str) -> None:
    with connected(say) as (network, base), pytest.raises(EndpointError, match=said) as caught:
        network.request("GET", f"{base}/models", within_s=LATE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_headers_that_do_not_end_are_not_waited_for(head: bytes) -> None:
    with (
        connected(silent(head)) as (network, base),
        pytest.raises(EndpointError, match="says nothing for"),
    ):
        network.request("GET", f"{base}/models", within_s=SOON)


@pytest.mark.parametrize(
    "say",
    [
        silent(STREAM),
        silent(STREAM + b"data: {}\n\n"),
        endlessly(STREAM, b": still busy\n\n"),
    ],
)
def test_a_stream_that_pauses_is_not_waited_for(say: Say) -> None:
    with connected(say, silence_s=SOON) as (network, base):
        events = network.stream(f"{base}/x", {}, never, within_s=SOON)
        with pytest.raises(EndpointError, match="says nothing for"):
            list(events)


def test_what_is_packed_is_not_unpacked() -> None:
    bomb = gzip.compress(b"x" * (MOST_BYTES * 4))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n"
    with (
        connected(saying(head.encode() + bomb)) as (network, base),
        pytest.raises(EndpointError, match=r"packs its answers \(gzip\)"),
    ):
        network.request("GET", f"{base}/models", within_s=5)


def test_a_redirect_is_told_and_not_followed() -> None:
    moved = b"HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/steal\r\nContent-Length: 0\r\n\r\n"
    with connected(saying(moved)) as (network, base):
        assert network.request("GET", f"{base}/models", within_s=5) == Reply(307, b"")


@pytest.mark.parametrize(
    ("say", "said"),
    [
        (endlessly(STREAM + b"data: ", b"x" * 65536), "byte limit"),
        (endlessly(STREAM, b"data: x" * 9000), "byte limit"),
        (endlessly(STREAM, b"data: " + b"x" * (MOST_EVENT_BYTES - 9) + b"\n\n"), "more than 64"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>"), "no stream of events"),
    ],
)
def test_a_stream_that_does_not_come_right_is_one_line(say: Say, said: str) -> None:
    with connected(say) as (network, base):
        events = network.stream(f"{base}/x", {}, never, within_s=LATE)
        with pytest.raises(EndpointError, match=said) as caught:
            list(events)
    assert "\n" not in str(caught.value)


def test_a_request_that_nobody_answers_is_left_when_it_is_stopped() -> None:
    gone = threading.Event()

    def wait(connection: object) -> None:
        silent(b"")(connection)  # type: ignore[arg-type]
        gone.set()

    with connected(wait) as (network, base):
        assert list(network.stream(f"{base}/x", {}, lambda: True, within_s=600)) == []
        assert gone.wait(10)


def test_closing_ends_what_is_waited_for() -> None:
    with raw_server(silent(STREAM)) as choice:
        network = Network(choice)
        events = network.stream(f"{choice.address.base}/x", {}, never, within_s=600)
        assert next(events) is None
        network.close()
        with pytest.raises(EndpointError, match="is closed"):
            next(events)
        with pytest.raises(EndpointError, match="is closed"):
            network.request("GET", choice.address.base, within_s=600)


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    with connected(saying(STREAM + b"data: \xff\xfe\r\n\r\n")) as (network, base):
        arrived = list(network.stream(f"{base}/x", {}, never, within_s=5))
    assert [event.data for event in arrived if event] == ["\ufffd\ufffd"]
