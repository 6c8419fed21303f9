"""`q35chat serve`: the model for editors and scripts, by the protocols that they speak."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console, StatusLine
from q35chat.errors import UsageError

if TYPE_CHECKING:
    from q35chat.server.gate import Rules
    from q35chat.server.service import Service

DEFAULT_PORT = 8035
DEFAULT_MEMORY_MIB = 1024
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECONDS_TO_LEAVE = 10

StateMemoryMib = Annotated[
    int,
    typer.Option(
        min=0,
        rich_help_panel="Model",
        help="Memory in MiB for the states of clients that take turns, so that none is read again; "
        "0 for none.",
    ),
]


@dataclass(frozen=True, slots=True)
class ServeOptions(opt.ModelOptions):
    """What `serve` takes; None means: not given."""

    state_cache_mib: StateMemoryMib = DEFAULT_MEMORY_MIB
    host: Annotated[
        str, typer.Option(help="The address to listen on. Any but this machine's needs a key.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = (
        DEFAULT_PORT
    )
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="Q35CHAT_API_KEY",
            show_envvar=True,
            help="What clients must know. Others on this machine can read a command line.",
        ),
    ] = None
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="A site whose pages may ask, such as https://a.example; repeat."
        ),
    ] = None
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Requests that may wait beside the one being answered.")
    ] = 32
    max_body_mib: Annotated[
        int, typer.Option(min=1, max=1024, help="The most MiB a request may have.")
    ] = 32
    thinking: opt.Thinking = None
    thinking_budget: opt.ThinkingBudget = None


@opt.takes(ServeOptions)
def serve(options: ServeOptions) -> int:
    """Answer editors and scripts by the protocols of OpenAI and Anthropic, until stopped."""
    return serve_until_stopped(options, Console.standard())


def serve_until_stopped(options: ServeOptions, console: Console) -> int:
    """Load the model and serve; the exit code. Raises Q35Error before anything is served."""
    from q35chat.commands.streaming import call_in_worker, stop_on_interrupt, stop_on_termination

    opt.check_thinking(options.thinking, options.thinking_budget)
    key = _checked_key(options)
    with ExitStack() as stack:
        listening = stack.enter_context(_listening(options.host, options.port))
        with StatusLine(console).showing("loading the model"):
            service = call_in_worker(lambda: _service(options, console))
        stack.callback(service.close)
        run, leave = _server(service, _rules(options, key), listening)

        def stop() -> None:
            service.stop()
            leave()

        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        console.note(
            f"serving {service.name} at http://{shown}:{port}/v1, "
            f"capacity {service.engine.model.capacity:,} slots; Ctrl+C stops"
        )
        with stop_on_interrupt(stop), stop_on_termination(stop):
            call_in_worker(run)
    return 0


def _checked_key(options: ServeOptions) -> str:
    """The key, empty for none. Raises UsageError where there must be one."""
    key = (options.api_key or "").strip()
    if options.api_key is not None and not key:
        raise UsageError("the API key is empty; give one, or leave out --api-key")
    if options.host not in _LOOPBACK and not key:
        raise UsageError(
            f"--host {options.host} lets other machines ask, which needs a key: set "
            "Q35CHAT_API_KEY, or leave out --host"
        )
    return key


def _rules(options: ServeOptions, key: str) -> Rules:
    from q35chat.server.gate import LOOPBACK, Rules

    hosts = LOOPBACK if options.host in _LOOPBACK else ()
    return Rules(key=key, hosts=hosts, origins=tuple(options.cors_origin or ()))


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises UsageError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason}; choose another --port or --host"
        ) from error


def _service(options: ServeOptions, console: Console) -> Service:
    from q35chat.chat.values import ChatSettings
    from q35chat.commands import model as models
    from q35chat.server.service import Service
    from q35chat.settings import load_settings
    from q35chat.states.memory import MemoryPool

    settings = load_settings()
    choice = models.choice_of(options, settings, console.note)
    limit = choice.state_cache_mib << 20
    engine = models.load_engine(choice, options.threads, MemoryPool(limit) if limit else None)
    thinking = options.thinking
    if thinking is None:
        thinking = settings.thinking or options.thinking_budget is not None
    defaults = ChatSettings(
        sampling=engine.sampling_defaults,
        thinking=thinking,
        thinking_budget=options.thinking_budget or settings.thinking_budget,
        max_image_tokens=options.max_image_tokens or settings.max_image_tokens,
    )
    return Service.over(
        engine,
        defaults,
        most_waiting=options.max_waiting,
        most_body=options.max_body_mib << 20,
    )


def _server(
    service: Service, rules: Rules, listening: socket.socket
) -> tuple[Callable[[], None], Callable[[], None]]:
    """What runs the server, and what ends that."""
    import uvicorn

    from q35chat.server.app import application

    config = uvicorn.Config(
        application(service, rules),
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_LEAVE,
    )
    server = uvicorn.Server(config)

    def leave() -> None:
        server.should_exit = True

    return lambda: server.run(sockets=[listening]), leave
