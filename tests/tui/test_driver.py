"""Keys that come faster than they are done with wait outside."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, cast

import pytest
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message

from q35chat.tui.terminal import AT_ONCE, PatientDriver, driver_for
from tests.doubles.scripted_backend import PATIENCE_S


class Counting(PatientDriver):
    """Counts the keys that nobody is done with; `waits` once the first have been sent."""

    sent = most = handled = 0

    def __init__(self) -> None:
        super().__init__(cast("App[Any]", None))
        self.waits = threading.Event()
        self._key_thread = threading.Thread(target=self._send_all)

    def run(self) -> threading.Thread:
        assert self._key_thread is not None
        self._key_thread.start()
        self.waits.wait()
        return self._key_thread

    def _send_all(self) -> None:
        for _ in range(5 * AT_ONCE):
            self.send_message(Key("a", "a"))
        self.waits.set()

    def _wait(self) -> None:
        self.waits.set()
        super()._wait()

    def done(self) -> None:
        self.handled += 1


@pytest.fixture(autouse=True)
def pluralise(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(driver: Counting, _: Message) -> None:
        driver.sent += 1
        driver.most = max(driver.most, driver.sent - driver.handled)
        driver._loop.call_soon_threadsafe(driver.done)

    monkeypatch.setattr(LinuxDriver, "send_message", send)


async def test_a_burst_of_keys_waits_until_those_before_are_done_with() -> None:
    driver = Counting()
    thread = driver.run()
    await asyncio.to_thread(thread.join, PATIENCE_S)
    assert not thread.is_alive()
    assert driver.most == AT_ONCE
    assert driver.handled == 5 * AT_ONCE


async def test_what_waits_goes_when_the_application_ends() -> None:
    driver = Counting()
    thread = driver.run()
    driver.exit_event.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert driver.handled == 0


def test_only_the_driver_of_terminals_is_replaced() -> None:
    assert driver_for(LinuxDriver) is PatientDriver
    assert driver_for(HeadlessDriver) is HeadlessDriver


class Reading(PatientDriver):
    """Reads `parts` one by one in place of a terminal, which is gone after them."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__(cast("App[Any]", None))
        self._own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.fileno = self._own.fileno()
        for part in parts:
            other.send(part)
        other.close()
        self.read: list[Message] = []
        with pytest.raises(EOFError, match="terminal is gone"), self._own:
            self.run_input_thread()

    def process_message(self, message: Message) -> None:
        self.read.append(message)

    @property
    def typed(self) -> str:
        return "".join(it.character or "" for it in self.read if isinstance(it, Key))


async def test_bytes_that_are_no_text_are_read_as_such() -> None:
    for byte in range(0x80, 0x100):
        typed = Reading(b"a" + bytes([byte]) + b"b\xe4\xbd", b"\xa0").typed
        assert (typed[0], typed[-2:]) == ("a", "b你")
        assert "\ufffd" in typed


@pytest.mark.parametrize(
    "sequence", [b"\x1b[99999999999u", b"\x1b[97:5u", b"\x1b[:9R", b"\x1b[69999879999~"]
)
async def test_a_sequence_that_names_no_key_is_left_out(sequence: bytes) -> None:
    assert Reading(sequence, b"a").typed == "a"


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (b"\x1b\r", "alt+enter"),
        (b"\x1b[13;3u", "alt+enter"),
        (b"\x1b[27;3;13~", "alt+enter"),
        (b"\x1b[13;2u", "shift+enter"),
        (b"\x1b[27;2;13~", "shift+enter"),
        (b"\r", "enter"),
    ],
)
async def test_enter_with_a_modifier_is_that_however_a_terminal_says_it(
    sent: bytes, key: str
) -> None:
    assert [it.key for it in Reading(sent).read if isinstance(it, Key)] == [key]
