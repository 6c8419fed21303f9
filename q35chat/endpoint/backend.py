"""A server as a model that plans and answers prompts: the facade over everything in `endpoint`.

What is asked goes to the server that the user named and to no other. Until the first token a
request that did not get through is sent again; after it, what came is kept as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from q35chat.chat.events import Event, Notice, PromptPlan
from q35chat.chat.service import ModelInfo
from q35chat.chat.values import Attachment, ChatSettings, SamplingSettings, TemplateOffers, Turn
from q35chat.chat.worker import Worker
from q35chat.endpoint.answer import DONE, Part, error_of, part_of
from q35chat.endpoint.choice import EndpointChoice
from q35chat.endpoint.counting import SlotCounter
from q35chat.endpoint.network import Network, NoStreamError, UnreachedError
from q35chat.endpoint.pictures import SentPictures, tokens_of
from q35chat.endpoint.request import Message, body_of, messages_of
from q35chat.endpoint.server import Server, busy, find_out
from q35chat.endpoint.turn import Parts, RemoteTurn
from q35chat.errors import Q35Error

ATTEMPTS: Final = 4
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
LOAD_S: Final = 2.0
_POLL_S: Final = 0.1
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
THINKS_ANEW: Final = "a server cannot go on with thoughts: it thinks from the beginning"

ShouldStop = Callable[[], bool]


class EndpointBackend:
    """One model of one server; a `ChatBackend`. Keeps no state: the server does, or reads again."""

    def __init__(
        self,
        choice: EndpointChoice,
        network: Network,
        server: Server,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._choice = choice
        self._network = network
        self._server = server
        self._first_pause_s = first_pause_s
        self._counter = SlotCounter(network, choice, server)
        refusal = f"{choice.address.host} says that {server.model} sees none"
        self._pictures = SentPictures(refusal if server.pictures is False else "")
        self._leaving = threading.Event()
        self._looking = Worker()
        self._load = ""
        self.vocabulary = ""
        self.sampling_defaults: SamplingSettings = server.sampling

    @classmethod
    def open(cls, choice: EndpointChoice) -> EndpointBackend:
        """Ask the server about itself. Raises EndpointError, UsageError."""
        network = Network(choice)
        try:
            return cls(choice, network, find_out(network, choice))
        except BaseException:
            network.close()
            raise

    @property
    def model(self) -> ModelInfo:
        """What the meters name."""
        server, where = self._server, self._choice.address
        return ModelInfo(
            name=server.model,
            target="server",
            precision="",
            device=where.host,
            capacity=server.capacity,
            is_demo=False,
            pictures=server.pictures is not False,
            offers=TemplateOffers(server.efforts, preserves=True),
            remote=where.base,
            load=self._load,
            estimated=not server.capacity_known or self._counter.estimates,
        )

    def close(self) -> None:
        """End the connections."""
        self._network.close()

    def interrupt(self, *, leaving: bool = False) -> None:
        """Nothing is computed here for a prompt; who is `leaving` does not wait to try again."""
        if leaving:
            self._leaving.set()

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Load, check and measure a picture. Raises PictureError."""
        return self._pictures.attach(path, max_tokens)

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        """What `run` would send, as the server counts it, or as it is estimated. What the server
        has read already, only its answer tells."""
        turns = turns if _goes_on(turns) else turns[:-1]
        return self._planned(turns, self._messages(turns, settings), settings)

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: ShouldStop
    ) -> Iterator[Event]:
        """The events of a turn as they come, as `ChatBackend` says. Raises EndpointError too."""
        anew = not _goes_on(turns)
        turns = turns[:-1] if anew else turns
        messages = self._messages(turns, settings)
        plan = self._planned(turns, messages, settings)
        body = body_of(self._server.model, messages, settings, self._extra(settings))
        parts = self._parts(body, should_stop)
        turn = RemoteTurn(parts, plan, settings, should_stop)
        for event in turn.events():
            yield event
            if isinstance(event, PromptPlan):
                self._looking.soon(lambda _: self._look())
                if anew:
                    yield Notice(THINKS_ANEW)
        if turn.counts.prompt is not None:
            self._counter.learn(messages, plan.image_tokens, turn.counts.prompt)

    def read_ahead(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: ShouldStop
    ) -> None:
        """Nothing: a server reads when it is asked."""

    def keep(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings,
        chat: str,
        should_stop: ShouldStop,
        *,
        shared: bool = False,
    ) -> None:
        """Nothing: the state is the server's."""

    def _messages(self, turns: Sequence[Turn], settings: ChatSettings) -> list[Message]:
        return messages_of(turns, settings, self._pictures.encode)

    def _planned(
        self, turns: Sequence[Turn], messages: Sequence[Message], settings: ChatSettings
    ) -> PromptPlan:
        pictures = sum(
            tokens_of(one, settings.max_image_tokens) for turn in turns for one in turn.attachments
        )
        tokens = self._counter.tokens(messages, settings, pictures)
        return PromptPlan(tokens, 0, pictures, self._server.capacity)

    def _extra(self, settings: ChatSettings) -> dict[str, Any]:
        """What this kind of server is known to take: counts and progress while it writes."""
        if self._server.kind in {"vllm", "sglang"}:
            return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        if self._server.kind == "llamacpp":
            penalty = settings.sampling.repetition_penalty
            return {"return_progress": True, "repeat_penalty": penalty}
        return {}

    def _look(self) -> None:
        self._load = busy(self._network, self._choice, LOAD_S)

    def _parts(self, body: dict[str, Any], should_stop: ShouldStop) -> Parts:
        """What the server answers, asked again until a first token came where it does not get
        through. Raises EndpointError, CapacityError."""
        accepted, attempt = False, 1
        while True:
            answer = _Answer(self._choice.address.host)
            pause_s = self._first_pause_s * 2 ** (attempt - 1)
            try:
                for part in self._once(body, should_stop, answer):
                    if part is not None or not accepted:
                        yield part
                    accepted = True
                if answer.ended or should_stop():
                    return
                raise UnreachedError(f"{self._choice.address.host} ended the answer in the middle")
            except NoStreamError as refused:
                trouble = self._refusal(refused)
                pause_s = max(pause_s, refused.reply.retry_after_s)
                again = refused.reply.status in _PASSING
            except UnreachedError as error:
                trouble, again = error, not answer.begun
            if not again or attempt == ATTEMPTS or pause_s > LONGEST_PAUSE_S:
                raise trouble
            if self._stopped_within(pause_s, should_stop):
                return
            attempt += 1

    def _once(
        self, body: dict[str, Any], should_stop: ShouldStop, answer: _Answer
    ) -> Iterator[tuple[Part, float] | None]:
        url = f"{self._choice.address.base}/chat/completions"
        stream = self._network.stream(url, body, should_stop, within_s=self._choice.wait_s)
        for event in stream:
            if event is None:
                yield None
            elif event.data == DONE:
                answer.ended = True
                return
            else:
                yield answer.take(event.data), event.at

    def _refusal(self, refused: NoStreamError) -> Q35Error:
        choice, reply = self._choice, refused.reply
        if choice.key is not None:
            reply = replace(reply, body=choice.key.hidden_in(reply.body))
        return error_of(reply, choice.address.host, choice.key_name)

    def _stopped_within(self, pause_s: float, should_stop: ShouldStop) -> bool:
        """Wait; whether the turn was stopped meanwhile."""
        for _ in range(round(pause_s / _POLL_S)):
            if should_stop() or self._leaving.wait(_POLL_S):
                return True
        return False


class _Answer:
    """How far one streamed answer came: `begun` with a first token, `ended` as it should."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.begun = False
        self.ended = False

    def take(self, data: str) -> Part:
        """The event with this data."""
        part = part_of(data, self._host)
        self.begun = self.begun or bool(part.text or part.reasoning)
        self.ended = self.ended or bool(part.finish)
        return part


def _goes_on(turns: Sequence[Turn]) -> bool:
    """Whether the prompt is a question, or an answer that has begun: thoughts alone are none."""
    last = turns[-1]
    return last.role == "user" or bool(last.text) or len(turns) == 1
