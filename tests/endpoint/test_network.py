"""Servers that misbehave: every one of them ends in one line, in time and within limits."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from q35chat.endpoint.choice import EndpointChoice, read_address
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
        (endlessly(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536), "sends more than 16.0 MiB"),
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


def test_an_event_does_not_shorten_the_time_until_the_first_token() -> None:
    events = STREAM + b"data: {}\n\n" * 3
    with connected(saying(events), silence_s=0.0) as (network, base):
        found = list(network.stream(f"{base}/x", {}, never, within_s=LATE))
    assert [event.data for event in found if event is not None] == ["{}"] * 3


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


TLS = Path(__file__).parent / "tls"


@contextmanager
def encrypted() -> Iterator[EndpointChoice]:
    """A server whose certificate is signed by `authority.pem` alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

    def say(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as safe:
            safe.recv(65536)
            safe.sendall(answer)

    with raw_server(say, waits=False) as plain:
        port = plain.address.host.rpartition(":")[2]
        yield replace(plain, address=read_address(f"https://127.0.0.1:{port}/v1"))


def asked(choice: EndpointChoice) -> Reply:
    network = Network(choice)
    try:
        return network.request("GET", f"{choice.address.base}/models", within_s=LATE)
    finally:
        network.close()


def test_a_certificate_of_an_unknown_authority_is_refused_and_the_way_out_is_said() -> None:
    with encrypted() as choice, pytest.raises(EndpointError, match=r"ca_file .* SSL_CERT_FILE"):
        asked(choice)


def test_an_authority_of_ones_own_is_trusted_by_the_settings_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with encrypted() as choice:
        assert asked(replace(choice, ca_file=TLS / "authority.pem")).body == b"{}"
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))
        assert asked(choice).body == b"{}"


def test_a_file_of_authorities_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    choice = EndpointChoice(read_address("https://host/v1"), ca_file=tmp_path / "none.pem")
    with pytest.raises(EndpointError, match=r"cannot read certificates from .*none\.pem"):
        Network(choice)


def test_a_proxy_stands_before_others_and_never_before_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with raw_server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address.root)
        monkeypatch.delenv("NO_PROXY", raising=False)
        elsewhere = EndpointChoice(read_address("http://models.invalid/v1"))
        assert asked(elsewhere).body == b"proxy"
        with raw_server(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere")) as here:
            assert asked(here).body == b"here"


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    with connected(saying(STREAM + b"data: \xff\xfe\r\n\r\n")) as (network, base):
        arrived = list(network.stream(f"{base}/x", {}, never, within_s=5))
    assert [event.data for event in arrived if event] == ["\ufffd\ufffd"]
