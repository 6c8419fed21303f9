"""Runs `async def` tests on a loop of their own and keeps the user's folders out of them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_backend import PATIENCE_S
from tests.support import patience
from tests.tui.on_the_way import Hold
from tests.tui.support import opened

LONGEST_S = 300
"""A whole test, on a machine with more to do: what waits for something has a limit of its own."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    played = _played(pyfuncitem.obj, arguments)
    asyncio.run(asyncio.wait_for(played, LONGEST_S))
    return True


async def _played(test: Callable[..., Awaitable[None]], arguments: dict[str, Any]) -> None:
    if "chat" not in arguments:
        await test(**arguments)
        return
    async with opened() as chat:
        await test(**{**arguments, "chat": chat})


@pytest.fixture
def chat() -> None:
    """The application over a scripted model, open while the test runs on its loop."""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("NO_COLOR", "TMUX", "SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def real_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real model, or a program of its own, may be still for longer on a busy machine."""
    monkeypatch.setattr(patience, "STILL_S", patience.IN_ALL_S)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> Hold:
    """From now on calls of a method wait for the gate."""

    def held(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def wait(*arguments: Any) -> Any:
            assert gate.wait(PATIENCE_S), "nobody opened the gate"
            return call(*arguments)

        monkeypatch.setattr(owner, name, wait)

    return held
