"""HTTP to one server, from any thread: requests with limits, and streams that stop at once.

Owns one thread with an event loop, in which everything happens that may take long, so that each
request can be cancelled wherever it waits: for a name, a connection, a header or a byte. Knows
nothing of what is said. Redirects are not followed, and nothing that is packed is unpacked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import httpx2

from q35chat.endpoint.choice import EndpointChoice
from q35chat.errors import EndpointError
from q35chat.text import readable_size, safe_line

MOST_BYTES: Final = 16 << 20
"""Of an answer that is read whole: the ids of a prompt of a million tokens take half of it."""
MOST_EVENT_BYTES: Final = 1 << 20
MOST_STREAM_BYTES: Final = 64 << 20
CONNECT_S: Final = 10.0
SILENCE_S: Final = 120.0
"""The longest pause within a stream, once the time until its first token has passed: before, events
tell that a prompt is read, which may take long."""
_POLL_S: Final = 0.1
_AGENT: Final = "q35chat"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that was read whole. `retry_after_s` is what the server asks to wait, 0 for
    nothing."""

    status: int
    body: bytes
    retry_after_s: float = 0.0


class NoStreamError(Exception):
    """The server answered a request for a stream with something else."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class UnreachedError(EndpointError):
    """No connection came about, or it ended before anything came: trying again may help."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """The data of one event of a stream, and when it came, in seconds of `time.perf_counter`."""

    data: str
    at: float


class Network:
    """Speaks HTTP with the server of `choice`."""

    def __init__(self, choice: EndpointChoice, *, silence_s: float = SILENCE_S) -> None:
        self._choice = choice
        self._silence_s = silence_s
        self._client = _client(choice)
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="endpoint", daemon=True)
        self._thread.start()

    def request(
        self, method: str, url: str, body: Mapping[str, Any] | None = None, *, within_s: float
    ) -> Reply:
        """What the server answers. Raises EndpointError, also after `within_s` seconds."""
        return self._wait(self._whole(method, url, body, within_s))

    def stream(
        self, url: str, body: Mapping[str, Any], should_stop: Callable[[], bool], *, within_s: float
    ) -> Iterator[Arrived | None]:
        """The events of a streamed answer as they come: None first, when the server has taken the
        request. Ends early when `should_stop`; the connection is closed wherever it is left.

        Raises RefusedError for another answer, EndpointError where the stream fails, pauses for
        too long, or begins later than in `within_s` seconds.
        """
        queue: SimpleQueue[Arrived | BaseException | None] = SimpleQueue()
        ended = _Ended()

        async def pump() -> None:
            try:
                await self._pump(url, body, queue.put, within_s)
                queue.put(ended)
            except BaseException as error:
                queue.put(error)
                raise

        running = asyncio.run_coroutine_threadsafe(pump(), self._loop)
        try:
            while True:
                try:
                    item = queue.get(timeout=_POLL_S)
                except Empty:
                    if should_stop():
                        return
                    continue
                if item is ended:
                    return
                if isinstance(item, asyncio.CancelledError):
                    raise self._is_closed() from item
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            running.cancel()

    def close(self) -> None:
        """End all that runs and close the connections."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        running = asyncio.all_tasks(self._loop)
        for task in running:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise self._is_closed()
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except concurrent.futures.CancelledError as error:
            raise self._is_closed() from error

    def _is_closed(self) -> EndpointError:
        return EndpointError(f"the connection to {self._host} is closed")

    async def _whole(
        self, method: str, url: str, body: Mapping[str, Any] | None, within_s: float
    ) -> Reply:
        try:
            async with (
                asyncio.timeout(within_s),
                self._client.stream(method, url, **self._content(body)) as response,
            ):
                return await self._read(response)
        except Exception as error:
            raise self._told(error, within_s) from error

    async def _pump(
        self,
        url: str,
        body: Mapping[str, Any],
        put: Callable[[Arrived | None], None],
        within_s: float,
    ) -> None:
        allowed = within_s
        try:
            async with asyncio.timeout(within_s) as limit:
                request = self._client.stream("POST", url, **self._content(body))
                async with request as response:
                    if response.status_code != httpx2.codes.OK:
                        raise NoStreamError(await self._read(response))
                    self._check_plain(response)
                    put(None)
                    size = 0
                    async for event in httpx2.EventSource(response, MOST_EVENT_BYTES):
                        now, here = time.perf_counter(), self._loop.time()
                        due = max(limit.when() or 0.0, here + self._silence_s)
                        allowed = due - here
                        limit.reschedule(due)
                        size += len(event.data)
                        if size > MOST_STREAM_BYTES:
                            raise self._too_large(MOST_STREAM_BYTES)
                        put(Arrived(event.data, now))
        except NoStreamError:
            raise
        except Exception as error:
            raise self._told(error, allowed) from error

    async def _read(self, response: httpx2.Response) -> Reply:
        self._check_plain(response)
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_raw():
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise self._too_large(MOST_BYTES)
        return Reply(response.status_code, b"".join(parts), _retry_after(response))

    def _content(self, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._choice.key is not None:
            headers["Authorization"] = f"Bearer {self._choice.key.reveal()}"
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        return {"content": content, "headers": headers}

    def _check_plain(self, response: httpx2.Response) -> None:
        packed = response.headers.get("content-encoding", "identity")
        if packed.lower() not in {"", "identity"}:
            raise EndpointError(
                f"{self._host} packs its answers ({safe_line(packed, 40)}) although it was asked "
                "not to; look at the proxy before it"
            )

    def _too_large(self, most: int) -> EndpointError:
        return EndpointError(f"{self._host} sends more than {readable_size(most)} in one answer")

    @property
    def _host(self) -> str:
        return self._choice.address.host

    def _told(self, error: Exception, allowed_s: float) -> Exception:
        """What to say of `error`, in one line; an error that is no trouble of a connection as it
        is."""
        if isinstance(error, EndpointError):
            return error
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            seconds = CONNECT_S if isinstance(error, httpx2.ConnectTimeout) else allowed_s
            return EndpointError(f"{self._host} says nothing for {seconds:,.0f} seconds")
        if isinstance(error, httpx2.ConnectError) and _UNKNOWN_SIGNER in str(error):
            return EndpointError(
                f"the certificate of {self._host} is not known here: {_reason(error)}; name the "
                "authority with ca_file in the settings, or with SSL_CERT_FILE"
            )
        for kind, failure, what in _FAILURES:
            if isinstance(error, kind):
                return failure(f"{what.format(self._host)}: {_reason(error)}")
        return error


_UNKNOWN_SIGNER: Final = "CERTIFICATE_VERIFY_FAILED"
_FAILURES: Final[tuple[tuple[type[Exception], type[EndpointError], str], ...]] = (
    (httpx2.SSEError, EndpointError, "{} sends no stream of events"),
    (httpx2.ConnectError, UnreachedError, "cannot reach {}"),
    (httpx2.ProxyError, UnreachedError, "cannot reach {} through the proxy"),
    (httpx2.TransportError, UnreachedError, "{} ended the connection"),
    (httpx2.InvalidURL, EndpointError, "{} cannot be asked"),
    (httpx2.StreamError, EndpointError, "{} cannot be asked"),
    (UnicodeError, EndpointError, "{} cannot be asked"),
)
"""What went wrong, whether trying again may help, and how it is said of a host."""


class _Ended(Exception):  # noqa: N818 - no failure: what ends a queue
    """The stream is over."""


def _client(choice: EndpointChoice) -> httpx2.AsyncClient:
    """Raises EndpointError where the authorities cannot be read."""
    try:
        trusted = (
            ssl.create_default_context(cafile=choice.ca_file)
            if choice.ca_file is not None
            else httpx2.create_ssl_context()
        )
    except OSError as error:
        name = choice.ca_file or "the file that SSL_CERT_FILE names"
        raise EndpointError(f"cannot read certificates from {name}: {_reason(error)}") from error
    return httpx2.AsyncClient(
        verify=trusted,
        trust_env=not choice.address.is_local,
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
        headers={"User-Agent": _AGENT, "Accept-Encoding": "identity"},
        follow_redirects=False,
    )


def _retry_after(response: httpx2.Response) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() and len(value) <= len("3600") else 0.0


def _reason(error: Exception) -> str:
    return safe_line(str(error) or type(error).__name__, 160)
