"""What the screen costs: start, decode speed, the longest block of its thread, and idleness.

`python -m tests.benchmarks.ui_cost BUNDLE [--tokens 400] [--rounds 3]`. The application runs on a
pseudo-terminal that reads everything; what is compared is measured in turn. A bundle whose
model seldom ends by itself (random weights) gives the steadiest numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from q35chat.chat.events import Event, Finished
from q35chat.chat.values import SamplingSettings
from q35chat.chat.workspace import Workspace
from tests.support.environment import SIZE, environment_without

BEAT_S = 0.002
IDLE_S = 5.0
STEPS_PER_S = 100
PATIENCE_S = 300.0
_ME = "tests.benchmarks.ui_cost"
LIMITS = "limits: block 50 ms, decode 3 %, idle 0"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a child found: `rate` in tokens a second, the longest times between two beats of the
    UI thread, on the clock and of its own processor time, in milliseconds."""

    rate: float = 0.0
    tokens: int = 0
    block_ms: float = 0.0
    busy_ms: float = 0.0


class Screen:
    """A child on a pseudo-terminal of 120×36; a thread reads all it writes."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 36, 120, 0, 0))
        self.started = time.perf_counter()
        # A user's installation is compiled: one that may not write what it compiles never is.
        kept = environment_without("PYTHONDONTWRITEBYTECODE", *SIZE)
        self.child = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._seen = ""

    def until(self, words: str) -> float:
        """Read until the words come; seconds since the start."""
        until = time.perf_counter() + PATIENCE_S
        while words not in self._seen:
            left = until - time.perf_counter()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                raise TimeoutError(f"{words!r} never came")
            self._seen = self._seen[-200:] + os.read(self._master, 1 << 16).decode(
                "utf-8", "ignore"
            )
        self._seen = ""
        return time.perf_counter() - self.started

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def close(self) -> None:
        """Ctrl+Q, then read to the end; a child that does not end is killed."""
        self.type("\x11")
        until = time.perf_counter() + PATIENCE_S
        try:
            while (left := until - time.perf_counter()) > 0:
                if select.select([self._master], [], [], left)[0]:
                    self._seen += os.read(self._master, 1 << 16).decode("utf-8", "ignore")
                if "Stop it and quit?" in self._seen:
                    self._seen = ""
                    self.type("y")
        except OSError:  # how a closed pseudo-terminal reads on Linux
            pass
        self.child.kill()
        self.child.wait()
        os.close(self._master)


# -- the children


def _workspace(bundle: Path, tokens: int) -> Workspace:
    from q35chat.commands.chat import ChatOptions, stored_workspace  # noqa: PLC0415
    from q35chat.settings import Settings  # noqa: PLC0415
    from q35chat.store import Store  # noqa: PLC0415

    workspace = stored_workspace(Store(), ChatOptions(model_dir=bundle), Settings(), lambda _: None)
    new = workspace.new

    def greedy() -> Any:
        conversation: Any = new()
        settings = replace(
            conversation.settings(),
            sampling=SamplingSettings(temperature=0.0),
            max_new_tokens=tokens,
            loop_guard=False,
        )
        conversation.change_settings(settings)
        return conversation

    workspace.new = greedy  # type: ignore[method-assign]
    return workspace


def _noting(events: Iterator[Event], note: Callable[[Measured], None]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Finished):
            walls = event.usage.timings.wall_ms
            note(Measured(1000 * len(walls) / max(1e-9, sum(walls)), len(walls)))
        yield event


def without_screen(bundle: Path, tokens: int, question: str) -> Measured:
    """The same turn in a worker thread while the main thread only waits."""
    workspace = _workspace(bundle, tokens)
    workspace.load()
    found: list[Measured] = []

    def work() -> None:
        for _ in _noting(workspace.new().send(question), found.append):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def on_screen(workspace: Any, result: Path) -> None:
    """Run the application; `result` gets what was measured when it is left."""
    from q35chat.settings import Settings  # noqa: PLC0415
    from q35chat.tui import app as application  # noqa: PLC0415
    from q35chat.tui.chat.running_turn import RunningTurn  # noqa: PLC0415

    found = Measured()
    begin = RunningTurn.__init__

    def note(measured: Measured) -> None:
        nonlocal found
        found = replace(found, rate=measured.rate, tokens=measured.tokens)

    def beginning(turn: RunningTurn, events: Iterator[Event], pacer: Any = None) -> None:
        begin(turn, _noting(events, note), pacer)

    async def beat(generating: Callable[[], bool]) -> None:
        nonlocal found
        while True:
            wall, busy = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT_S)
            if generating():
                longest = max(found.block_ms, 1000 * (time.perf_counter() - wall - BEAT_S))
                busiest = max(found.busy_ms, 1000 * (time.thread_time() - busy))
                found = replace(found, block_ms=longest, busy_ms=busiest)

    class Watched(application.ChatApp):
        async def on_load(self) -> None:
            if os.environ.get("BEAT"):
                running = lambda: self._chat.session.running  # noqa: E731
                self._beat = asyncio.create_task(beat(running))

    RunningTurn.__init__ = beginning  # type: ignore[method-assign,assignment]
    application.ChatApp = Watched  # type: ignore[misc]
    application.run(workspace, Settings())
    result.write_text(json.dumps([found.rate, found.tokens, found.block_ms, found.busy_ms]))


def scripted() -> Any:
    """A thousand turns, and an answer of a hundred steps a second."""
    from tests.doubles.scripted_backend import Reply  # noqa: PLC0415
    from tests.doubles.scripted_workspace import (  # noqa: PLC0415
        MODEL,
        ScriptedWorkspace,
        dialogue,
    )

    text = "Some prose with **bold** words.\n\n```python\nx = search(items, 1)\n```\n\n- a\n- b\n\n"
    reply = Reply(text * 40, pause_s=1 / STEPS_PER_S)
    workspace = ScriptedWorkspace([reply], info=replace(MODEL, capacity=100_000, target="npu"))
    conversation = workspace.add("Long", dialogue(500))
    workspace.new = lambda: conversation  # type: ignore[method-assign]
    return workspace


# -- the measurements


def _median(values: list[float]) -> float:
    return statistics.median(values)


def first_paint(rounds: int) -> None:
    """Until the composer is drawn, beside importing Textual alone; warm."""
    paints, imports = list[float](), list[float]()
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import textual.app, textual.widgets"], check=True)
        imports.append(time.perf_counter() - start)
        screen = Screen("q35chat")
        paints.append(screen.until("sk anything"))
        screen.close()
    paint, plain = _median(paints[1:]), _median(imports[1:])
    print(f"first paint {paint:.3f} s; import textual {plain:.3f} s; ratio {paint / plain:.2f}")


def longest_block() -> None:
    """While an answer streams at `STEPS_PER_S` under a thousand turns."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BEAT"] = "1"
        measured = _turn(Path(folder), "--scripted")
        del os.environ["BEAT"]
    print(
        f"longest block {measured.block_ms:.0f} ms on the clock, {measured.busy_ms:.0f} ms busy, "
        f"{measured.tokens} tokens at {STEPS_PER_S} steps/s under 1,000 turns"
    )


def decode_cost(bundle: Path, tokens: int, rounds: int) -> None:
    """Tokens a second without and with the screen, in turn."""
    plain, shown = list[Measured](), list[Measured]()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            result = Path(folder) / "plain.json"
            _run("--child", "plain", str(bundle), "--tokens", str(tokens), "--result", str(result))
            plain.append(Measured(*json.loads(result.read_text())))
            shown.append(_turn(Path(folder), str(bundle), "--tokens", str(tokens)))
    for without, with_screen in zip(plain, shown, strict=True):
        print(f"  {without.rate:.2f} tok/s without ({without.tokens}), "
              f"{with_screen.rate:.2f} with the screen ({with_screen.tokens})")  # fmt: skip
    rates = [_median([measured.rate for measured in side]) for side in (plain, shown)]
    print(f"decode with the screen / without: {rates[1] / rates[0]:.3f}")


def idle() -> None:
    """Processor time of the application while nothing happens."""
    screen = Screen(_ME, "--child", "screen", "--scripted")
    screen.until("sk anything")
    time.sleep(3)
    process = psutil.Process(screen.child.pid)
    before = process.cpu_times()
    time.sleep(IDLE_S)
    after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    screen.close()
    print(f"idle: {max(0.0, 1000 * spent):.0f} ms of processor time in {IDLE_S:.0f} s")


def _turn(folder: Path, *arguments: str) -> Measured:
    result = folder / "screen.json"
    screen = Screen(_ME, "--child", "screen", *arguments, "--result", str(result))
    screen.until("thinking off")
    screen.type("Tell me a long story.")
    screen.until("this turn needs")
    screen.type("\r")
    screen.until("  ↓")
    screen.close()
    return Measured(*json.loads(result.read_text()))


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", _ME, *arguments], check=True)


def main() -> None:
    """Measure everything, or be one of the children that are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=["screen", "plain"])
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--result", type=Path, default=Path(os.devnull))
    asked = parser.parse_args()
    if asked.child == "screen":
        workspace = scripted() if asked.scripted else _workspace(asked.bundle, asked.tokens)
        on_screen(workspace, asked.result)
    elif asked.child == "plain":
        found = without_screen(asked.bundle, asked.tokens, "Tell me a long story.")
        asked.result.write_text(json.dumps([found.rate, found.tokens, 0.0, 0.0]))
    else:
        first_paint(asked.rounds)
        longest_block()
        idle()
        if asked.bundle is not None:
            decode_cost(asked.bundle, asked.tokens, asked.rounds)
        print(LIMITS)


if __name__ == "__main__":
    main()
