from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from q35chat.chat.events import Event, Finished, PromptPlan, Timings, Token, Usage
from q35chat.server.app import application
from q35chat.server.problems import RefusedError
from q35chat.server.service import Asked, Service
from tests.doubles.chat_model import user
from tests.server.asking import Asking, question

USAGE = Usage(1, 0, 0, 0, 1, 64, 2, Timings())


class Steps:
    """An engine whose steps are allowed one by one; tells what was asked, in order."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.taken = 0
        self.order: list[str] = []

    def answer(
        self, _prompt: object, settings: Any, should_stop: Callable[[], bool], _options: object
    ) -> Iterator[Event]:
        """An answer of one token a step, without an end of its own."""
        self.order.append(settings.system_prompt)
        yield PromptPlan(1, 0, 0, 64)
        self.begun.release()
        while True:
            self.allowed.acquire()
            self.taken += 1
            yield Token(1, "a", "answer", 1.0, 1.0, 9)
            if should_stop() or settings.max_new_tokens == 1:
                reason = "stop" if settings.max_new_tokens == 1 else "cancelled"
                yield Finished(reason, "a", "", (1,), USAGE)  # type: ignore[arg-type]
                return


@pytest.fixture
def steps(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    steps = Steps()
    monkeypatch.setattr(service.engine, "answer", steps.answer)
    yield steps
    service.desk.close()
    steps.allowed.release(99)
    service.desk.wait()


async def begun(steps: Steps) -> None:
    """Wait until an answer is being computed."""
    await asyncio.to_thread(steps.begun.acquire)


def test_clients_take_turns_and_each_waits_in_its_own_line(service: Service, steps: Steps) -> None:
    def job(name: str) -> Any:
        settings = service.defaults.with_changes(
            service.defaults, type(service.defaults)(system_prompt=name, max_new_tokens=1)
        )
        return service.job(Asked(settings, turns=(user("Hello"),), client=name[0]))

    async def main() -> None:
        service.desk._most_waiting = 9
        first = service.submit(job("a1"))
        await begun(steps)
        others = [service.submit(job(name)) for name in ("a2", "a3", "b1")]
        steps.allowed.release(4)
        for answering in (first, *others):
            assert isinstance([event async for event in answering.events()][-1], Finished)

    asyncio.run(main())
    assert steps.order == ["a1", "a2", "b1", "a3"]


def test_too_many_are_told_when_to_come_again(service: Service, steps: Steps) -> None:
    async def main() -> None:
        asked = Asked(service.defaults, turns=(user("Hello"),))
        service.submit(service.job(asked))
        await begun(steps)
        for _ in range(2):
            service.submit(service.job(asked))
        with pytest.raises(RefusedError, match="2 requests wait already") as refused:
            service.submit(service.job(asked))
        assert refused.value.status == 503
        assert int(refused.value.headers["Retry-After"]) >= 1

    asyncio.run(main())
    assert 'q35chat_requests_total{end="refused"} 1.0' in service.metrics.page().decode()


class Wire:
    """One request over ASGI whose client goes away, or does not read, when the test says so."""

    def __init__(self, service: Service, body: dict[str, Any]) -> None:
        self._app = application(service)
        self._body = json.dumps(body).encode()
        self._sent = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()
        self.got = asyncio.Queue[bytes]()

    async def ask(self) -> None:
        """The whole request."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "raw_path": b"/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8035),
            "scheme": "http",
            "root_path": "",
            "http_version": "1.1",
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        await self.got.put(message.get("body", b""))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_stops_its_answer_within_a_step(
    service: Service, steps: Steps, stream: bool
) -> None:
    async def main() -> None:
        wire = Wire(service, question("Hello", stream=stream))
        asking = asyncio.create_task(wire.ask())
        await begun(steps)
        steps.allowed.release()
        wire.gone.set()
        await asking
        steps.allowed.release(9)
        service.desk.close()
        await asyncio.to_thread(service.desk.wait)

    asyncio.run(main())
    assert steps.taken <= 2


def test_a_client_that_went_before_its_turn_costs_nothing(service: Service, steps: Steps) -> None:
    async def main() -> None:
        first = asyncio.create_task(Wire(service, question("Hello")).ask())
        await begun(steps)
        second = Wire(service, question("and"))
        asking = asyncio.create_task(second.ask())
        while not service.desk.waiting:
            await asyncio.sleep(0)
        second.gone.set()
        await asking
        first.cancel()
        steps.allowed.release()

    asyncio.run(main())
    assert len(steps.order) == 1


def test_a_reader_that_does_not_read_holds_nobody_up(service: Service, steps: Steps) -> None:
    async def main() -> None:
        slow = Wire(service, question("Hello", stream=True, max_tokens=1))
        slow.reads.clear()
        lazy = asyncio.create_task(slow.ask())
        await begun(steps)
        other = Wire(service, question("Hello"))
        asking = asyncio.create_task(other.ask())
        service.desk._current.cancel()  # type: ignore[union-attr]
        steps.allowed.release()
        await begun(steps)
        slow.reads.set()
        await lazy
        asking.cancel()

    asyncio.run(main())
    assert len(steps.order) == 2


def test_stopping_ends_a_stream_with_an_error_and_its_end(service: Service, steps: Steps) -> None:
    async def main() -> list[bytes]:
        wire, late = (Wire(service, question("Hello", stream=True)) for _ in range(2))
        tasks = [asyncio.create_task(wire.ask())]
        await begun(steps)
        tasks.append(asyncio.create_task(late.ask()))
        while not service.desk.waiting:
            await asyncio.sleep(0)
        service.stop()
        steps.allowed.release()
        await asyncio.gather(*tasks)
        return [part for one in (wire, late) for part in list(one.got._queue)]  # type: ignore[attr-defined]

    parts = asyncio.run(main())
    assert parts.count(b"data: [DONE]\n\n") == 2
    assert sum(b"server_stopping" in part for part in parts) == 2


def test_after_stopping_nothing_is_taken_and_health_says_so(
    service: Service, asking: Asking
) -> None:
    service.desk.close()
    assert asking.http.get("/health").status_code == 503
    assert asking.post("/v1/completions", {"prompt": "a"}, 503)["error"]["code"] == (
        "server_stopping"
    )
