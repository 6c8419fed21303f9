"""Counts of what the server did, as Prometheus reads them. Knows events; knows no request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from q35chat.chat.events import Event, Finished, PromptPlan, Token

_STEPS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_FIRST_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "q35chat_"
        self._requests = Counter(
            f"{name}requests", "Requests by how they ended.", ["end"], registry=self.registry
        )
        self._prompt = Counter(
            f"{name}prompt_tokens", "Tokens of prompts, reused ones included.",
            registry=self.registry,
        )  # fmt: skip
        self._reused = Counter(
            f"{name}reused_tokens", "Tokens of prompts that were not read again.",
            registry=self.registry,
        )  # fmt: skip
        self._written = Counter(
            f"{name}generated_tokens", "Tokens of answers.", registry=self.registry
        )
        self._step = Histogram(
            f"{name}step_seconds", "Time until the next token is known.",
            buckets=_STEPS_S, registry=self.registry,
        )  # fmt: skip
        self._first = Histogram(
            f"{name}prefill_seconds", "Time in which a prompt was read.",
            buckets=_FIRST_S, registry=self.registry,
        )  # fmt: skip

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Tell `value` whenever somebody asks."""
        Gauge(f"q35chat_{name}", what, registry=self.registry).set_function(value)

    def saw(self, event: Event) -> None:
        """Count an event of a turn."""
        match event:
            case PromptPlan():
                self._prompt.inc(event.prompt_tokens)
                self._reused.inc(event.reused_tokens)
            case Token(id=int()):
                self._written.inc()
                if event.wall_ms:
                    self._step.observe(event.wall_ms / 1e3)
            case Finished():
                self._requests.labels(event.reason).inc()
                self._first.observe(event.usage.timings.prefill_ms / 1e3)

    def refused(self) -> None:
        """Count a request for which there was no place."""
        self._requests.labels("refused").inc()

    def went_away(self) -> None:
        """Count a request whose client did not wait for its turn."""
        self._requests.labels("cancelled").inc()

    def failed(self) -> None:
        """Count a request that could not be answered."""
        self._requests.labels("failed").inc()

    def page(self) -> bytes:
        """All of it as text."""
        page: bytes = generate_latest(self.registry)
        return page
