"""`python -m tests.campaigns.endpoint --url URL`, or `--llama-server PROGRAM --gguf MODEL`: a real
server through `q35chat`.

Asks a running server, or starts `llama-server` on a free port of this machine. Prints a line a
check, and ends with 1 where one failed. llama-server is built from the sources in the PyPI sdist of
llama-cpp-python (`vendor/llama.cpp`: `cmake -B build -DLLAMA_CURL=OFF`, then `cmake --build build
--target llama-server`); any small GGUF will do, and `tests.benchmarks.peers.to_gguf` makes one.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from q35chat.chat.events import Event, Finished, PrefillProgress, PromptPlan, Token
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import unkept
from q35chat.endpoint.backend import EndpointBackend
from q35chat.endpoint.choice import EndpointChoice, read_address
from q35chat.errors import CapacityError, EndpointError

_START_S = 300
_SOON_S = 1.0
_LONG = "The quick brown fox jumps over the lazy dog. " * 20

Check = Callable[[EndpointBackend, ChatSettings], str]


def answers(backend: EndpointBackend, settings: ChatSettings) -> str:
    """An answer comes, and its counts are those that were planned."""
    plan, tokens, end = _run(unkept(backend, settings).send("Say hello."))
    usage = end.usage
    assert "".join(token.text for token in tokens if token.kind == "answer") == end.text
    assert usage.completion_tokens > 0
    if not backend.model.estimated:
        assert plan.prompt_tokens == usage.prompt_tokens, (plan, usage)
    step = f"{usage.timings.step_ms:.1f} ms between tokens"
    return f"{usage.prompt_tokens} read, {usage.completion_tokens} written, {step}"


def reuses(backend: EndpointBackend, settings: ChatSettings) -> str:
    """A follow-up behind a long question reuses it, as far as the server tells."""
    chat = unkept(backend, settings)
    _run(chat.send(_LONG))
    usage = _run(chat.send("And now?"))[2].usage
    return f"{usage.reused_tokens} of {usage.prompt_tokens} reused"


def goes_on(backend: EndpointBackend, settings: ChatSettings) -> str:
    """An answer that was stopped by its limit is gone on with, and not begun anew."""
    chat = unkept(backend, replace(settings, max_new_tokens=4))
    first = _run(chat.send("Count from one to twenty in words."))[2]
    second = _run(chat.continue_answer())[2]
    whole = chat.steps[-1].turn.text
    assert whole == first.text + second.text
    assert chat.steps[-1].turn.text.startswith(first.text)
    return repr(whole)


def stops(backend: EndpointBackend, settings: ChatSettings) -> str:
    """A stopped turn ends within a second, and the next one is answered."""
    chat = unkept(backend, replace(settings, max_new_tokens=2000))
    began = 0.0
    for event in chat.send("Write a very long story."):
        if isinstance(event, Token) and not began:
            began = time.monotonic()
            chat.cancel()
    spent = time.monotonic() - began
    assert spent < _SOON_S, spent
    _run(unkept(backend, settings).send("Hello"))
    return f"after {spent * 1000:.0f} ms"


def refuses(backend: EndpointBackend, settings: ChatSettings) -> str:
    """A prompt over the capacity is refused in one line."""
    words = _LONG * (backend.model.capacity // 100 + 2)
    try:
        _run(unkept(backend, settings).send(words))
    except CapacityError as error:
        return str(error)
    raise AssertionError("it was answered")


CHECKS: tuple[Check, ...] = (answers, reuses, goes_on, stops, refuses)


def run(choice: EndpointChoice) -> int:
    """All checks of a server; how many failed."""
    backend, failed = EndpointBackend.open(choice), 0
    try:
        model = backend.model
        sys.stdout.write(f"{model}\n")
        settings = ChatSettings(replace(backend.sampling_defaults, temperature=0.0))
        settings = replace(settings, max_new_tokens=24)
        for check in CHECKS:
            try:
                said = check(backend, settings)
            except Exception as error:  # noqa: BLE001 - every check is tried
                failed += 1
                said = f"FAILED {type(error).__name__}: {error}"
            sys.stdout.write(f"{check.__name__}: {said}\n")
            sys.stdout.flush()
    finally:
        backend.close()
    return failed


def _run(events: Iterator[Event]) -> tuple[PromptPlan, list[Token], Finished]:
    found = list(events)
    plan, end = found[0], found[-1]
    assert isinstance(plan, PromptPlan)
    assert isinstance(end, Finished)
    for event in found:
        assert not isinstance(event, PrefillProgress) or event.done <= event.total
    return plan, [event for event in found if isinstance(event, Token)], end


@contextmanager
def llama_server(program: str, gguf: str) -> Iterator[EndpointChoice]:
    """A server of our own on a free port. Raises EndpointError where it does not come."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "-m", gguf, "--port", str(port), "--ctx-size", "2048", "--parallel", "1",
         "--jinja", "--no-webui", "--metrics"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    choice = EndpointChoice(read_address(f"http://127.0.0.1:{port}/v1"))
    try:
        _await(choice, process)
        yield choice
    finally:
        process.terminate()
        process.wait()


def _await(choice: EndpointChoice, process: subprocess.Popen[bytes]) -> None:
    for _ in range(_START_S):
        try:
            EndpointBackend.open(choice).close()
        except EndpointError:
            if process.poll() is not None:
                raise
            time.sleep(1)
        else:
            return
    raise EndpointError(f"llama-server is not there after {_START_S} seconds")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--model", default="", help="its model, where it has several")
    parser.add_argument("--llama-server", help="the program to start")
    parser.add_argument("--gguf", help="its model")
    given = parser.parse_args()
    if given.url:
        failed = run(EndpointChoice(read_address(given.url), model=given.model))
    elif given.llama_server and given.gguf:
        with llama_server(given.llama_server, given.gguf) as choice:
            failed = run(choice)
    else:
        parser.error("give --url, or --llama-server with --gguf")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
