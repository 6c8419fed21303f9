"""`python -m tests.campaigns.server [BUNDLE] [--count N] [--seed S]`: requests to a real server
over the loopback address, eight at a time, of which a third is broken off at random.

Each answer that is waited for must be, to the letter, what `ask --greedy` says; in the end nothing
runs or waits, the next question is answered, and after many requests the memory is what it was
after a quarter, within a tenth. Without a bundle the demo is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from q35chat.processes import python_command, python_environment
from tests.campaigns.soak import resident_mib

QUESTIONS = (
    "What is the capital of France?",
    "Hello",
    "Who are you?",
    "What is a KV cache?",
    "你好",
    "Name three colours.",
)
_AT_ONCE = 8
_MOST = 1.1
_MANY = 200
"""Requests after a quarter of which all is there that is made once."""
_TOLD = 100
_PATIENCE_S = 120.0


@dataclass(slots=True)
class Seen:
    """What came of the requests."""

    answered: int = 0
    broken_off: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


def expected(question: str, model: Sequence[str]) -> str:
    """What `ask --greedy` answers."""
    line = python_command("-m", "q35chat", "ask", "--greedy", "--no-save", "--json", *model)
    done = subprocess.run(
        [*line, question],
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_PATIENCE_S,
    )
    return str(json.loads(done.stdout)["text"])


def run(count: int, seed: int, bundle: Path | None, questions: int = len(QUESTIONS)) -> list[str]:
    """What was wrong, a line each."""
    model = [] if bundle is None else ["--model-dir", str(bundle)]
    answers = {one: expected(one, model) for one in QUESTIONS[:questions]}
    server = subprocess.Popen(
        python_command("-m", "q35chat", "serve", "--port", "0", *model),
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        url = address(server)
        return asyncio.run(_campaign(url, psutil.Process(server.pid), answers, count, seed))
    finally:
        server.terminate()
        server.wait(_PATIENCE_S)


def address(server: subprocess.Popen[bytes]) -> str:
    """Where it can be asked, once it can."""
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r" at (http://\S+)/v1,", line.decode()):
            return found[1]
    raise RuntimeError("the server ended before it could be asked")


async def _campaign(
    url: str, process: psutil.Process, answers: dict[str, str], count: int, seed: int
) -> list[str]:
    chance, seen = random.Random(seed), Seen()
    plans = [(chance.choice(list(answers)), chance.random(), chance.random() < 1 / 3)
             for _ in range(count)]  # fmt: skip
    free = asyncio.Semaphore(_AT_ONCE)
    async with httpx2.AsyncClient(base_url=url, timeout=_PATIENCE_S) as client:

        async def one(question: str, when: float, breaks_off: bool) -> None:
            async with free:
                stream = when < 0.5 or breaks_off
                body = {"messages": [{"role": "user", "content": question}],
                        "temperature": 0, "stream": stream}  # fmt: skip
                most = int(when * 12) if breaks_off else None
                said = await (_streamed(client, body, most) if stream else _whole(client, body))
                if breaks_off:
                    seen.broken_off += 1
                else:
                    seen.answered += 1
                    if said != answers[question]:
                        seen.wrong.append(f"{question!r} was answered {said!r}")
                done = seen.answered + seen.broken_off
                if done in (count // 4, count):
                    seen.memory.append(sum(resident_mib(process)))
                if done % _TOLD == 0:
                    sys.stdout.write(f"{done} of {count}, {len(seen.wrong)} wrong\n")
                    sys.stdout.flush()

        await asyncio.gather(*(one(*plan) for plan in plans))
        return await _judged(client, seen, answers)


async def _judged(client: httpx2.AsyncClient, seen: Seen, answers: dict[str, str]) -> list[str]:
    question = next(iter(answers))
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0}
    found = list(seen.wrong)
    if await _whole(client, body) != answers[question]:
        found.append("the last question was answered otherwise")
    page = (await client.get("/metrics")).text
    left = (name for name in ("running", "waiting") if f"q35chat_{name} 0.0" not in page)
    found += [f"something is still {name}" for name in left]
    first, last = seen.memory
    if seen.answered + seen.broken_off >= _MANY and last > first * _MOST:
        found.append(f"memory grew from {first:.1f} to {last:.1f} MiB")
    sys.stdout.write(
        f"{seen.answered} answered, {seen.broken_off} broken off, {len(seen.wrong)} wrong; "
        f"{first:.1f} MiB after a quarter, {last:.1f} at the end\n"
    )
    return found


async def _whole(client: httpx2.AsyncClient, body: dict[str, Any]) -> str:
    response = await client.post("/v1/chat/completions", json=body)
    return str(response.json()["choices"][0]["message"]["content"])


async def _streamed(client: httpx2.AsyncClient, body: dict[str, Any], most: int | None) -> str:
    """The text of a stream, broken off after `most` of its events where that is a number."""
    said, events = "", 0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if most is not None and events >= most:
                break
            events += 1
            chunk = json.loads(line.removeprefix("data: "))
            said += chunk["choices"][0]["delta"].get("content", "")
    return said


def main() -> int:
    """The campaign."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = run(options.count, options.seed, options.bundle)
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
