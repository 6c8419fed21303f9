"""A server that sends the bytes it is told to, however wrong they are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from q35chat.endpoint.choice import EndpointChoice, read_address

Say = Callable[[socket.socket], None]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@contextmanager
def raw_server(say: Say, *, waits: bool = True) -> Iterator[EndpointChoice]:
    """Let `say` speak on each connection, where it `waits` once a request has come."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if waits:
                _read_request(connection)
            say(connection)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        port = listening.getsockname()[1]
        yield EndpointChoice(read_address(f"http://127.0.0.1:{port}/v1"))
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _read_request(connection: socket.socket) -> None:
    """To its end: what is unread when a connection is closed resets it, and costs the answer."""
    with connection.makefile("rb") as request:
        length = 0
        while (line := request.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        request.read(length)


def endlessly(head: bytes, piece: bytes) -> Say:
    """Send `piece` after `piece` until nobody listens."""

    def say(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return say


def saying(data: bytes) -> Say:
    """Send `data` and end the connection."""
    return lambda connection: connection.sendall(data)


def silent(head: bytes) -> Say:
    """Send `head`, then nothing until the other side goes away."""

    def say(connection: socket.socket) -> None:
        connection.sendall(head)
        while connection.recv(65536):
            pass

    return say
