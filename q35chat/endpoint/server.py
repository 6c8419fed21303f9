"""What a server says of itself when it is asked first: which one it is, which model answers, how
many slots it has, what it can count, and how busy it is.

Whatever it does not answer stays unknown; only its list of models may not be missing where the
user named none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from q35chat.chat.values import SamplingSettings
from q35chat.endpoint.answer import error_of, whole_or_none
from q35chat.endpoint.choice import EndpointChoice
from q35chat.endpoint.network import Network, Reply
from q35chat.errors import EndpointError, Option, UsageError
from q35chat.json_reader import Fields, parse_json
from q35chat.text import safe_line

ServerKind = Literal["vllm", "sglang", "llamacpp", "q35chat", ""]
Counting = Literal["messages", "template", ""]
"""How a server counts a prompt: `/tokenize` takes messages, or `/apply-template` makes a text of
them first."""

ASK_S: Final = 10.0
ASSUMED_CAPACITY: Final = 32_768
"""Slots of a server that does not say how many it has."""

_OK: Final = 200
_MOST_NAMES: Final = 5
_MOST_CAPACITY: Final = 2**31 - 1
_OWNERS: Final[Mapping[str, ServerKind]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "q35chat": "q35chat",
}
EFFORTS: Final = ("low", "medium", "high")
"""The protocol's words for how hard to think."""
QWEN_SAMPLING: Final = SamplingSettings(temperature=1.0, top_k=20, top_p=0.95)
"""What the checkpoints of Qwen3.5 recommend in their generation_config.json."""


@dataclass(frozen=True, slots=True)
class Server:
    """`capacity` is in slots and only assumed where not `capacity_known`; `pictures` None means
    that it does not say whether it takes any. `efforts` are its words for how hard to think."""

    kind: ServerKind
    model: str
    capacity: int
    capacity_known: bool
    pictures: bool | None = None
    counting: Counting = ""
    efforts: tuple[str, ...] = EFFORTS
    sampling: SamplingSettings = field(default_factory=lambda: QWEN_SAMPLING)


def find_out(network: Network, choice: EndpointChoice) -> Server:
    """Ask the server about itself; a few short requests. Raises EndpointError, UsageError."""
    where = choice.address
    listed = network.request("GET", f"{where.base}/models", within_s=ASK_S)
    entry, kind = _entry(listed, choice)
    props = Fields({}, where.host, EndpointError)
    if kind in {"llamacpp", "q35chat", ""}:
        props = _asked(network, choice, "/props")
    told = choice.capacity or _capacity(entry, props)
    model = choice.model or entry.text("id")
    counting = _counting(network, choice, model)
    return Server(
        kind=kind,
        model=model,
        capacity=told or ASSUMED_CAPACITY,
        capacity_known=bool(told),
        pictures=_pictures(entry, props),
        counting=counting,
        efforts=_efforts(entry),
        sampling=_sampling(props),
    )


def busy(network: Network, choice: EndpointChoice, within_s: float) -> str:
    """How full and busy the server says it is, in a few words; empty where it does not."""
    try:
        reply = network.request("GET", f"{choice.address.root}/metrics", within_s=within_s)
    except EndpointError:
        return ""
    return load_words(reply.body.decode("utf-8", "replace")) if reply.status == _OK else ""


_SAMPLE: Final = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{[^\n]*\})? +(?P<value>[0-9.eE+-]{1,32})\b", re.MULTILINE
)
_KV: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
_WAITING: Final = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")


def load_words(metrics: str) -> str:
    """What Prometheus samples of vLLM and SGLang tell: the share of the KV cache in use, of several
    engines that of the fullest, and how many requests wait."""
    values: dict[str, list[float]] = {}
    for match in _SAMPLE.finditer(metrics):
        if match["name"] in {*_KV, *_WAITING}:
            with suppress(ValueError):
                value = float(match["value"])
                values.setdefault(match["name"], []).append(value)
    kv = next((max(values[name]) for name in _KV if name in values), None)
    waiting = sum(next((values[name] for name in _WAITING if name in values), []))
    words = [] if kv is None or not 0 <= kv <= 1 else [f"KV cache {kv:.0%} used"]
    if 0 < waiting < _MOST_CAPACITY:
        words.append(f"{waiting:.0f} waiting")
    return " · ".join(words)


def _entry(reply: Reply, choice: EndpointChoice) -> tuple[Fields, ServerKind]:
    """What the list of models says of the one that is asked. Raises EndpointError where nothing
    answers as such a server, UsageError for a model that it has not."""
    host = choice.address.host
    wrong = partial(EndpointError)
    missing = Fields({}, f"{host}: its list of models", wrong)
    if reply.status in {404, 405, 501} and choice.model:
        return missing, ""
    if reply.status != _OK:
        raise error_of(reply, host, choice.key_name)
    try:
        listed = Fields(parse_json(reply.body), f"{host}: its list of models", wrong).raw("data")
    except ValueError as error:
        raise EndpointError(
            f"{host} answers, but not as a server of models: {error}; the address ends with /v1 "
            "on most"
        ) from error
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise EndpointError(f"{host}: its list of models is none; is the address right?")
    entries = [Fields(one, f"{host}: a model", wrong) for one in listed]
    names = [entry.text("id") for entry in entries]
    if choice.model and choice.model not in names:
        aliased = [entry for entry in entries if choice.model in _aliases(entry)]
        if not aliased:
            raise UsageError(
                f"{host} has no model {safe_line(choice.model)!r}; it has {_named(names)}"
            )
        entries = aliased
    elif choice.model:
        entries = [entries[names.index(choice.model)]]
    elif len(entries) != 1:
        raise UsageError(f"{host} has {_named(names)}: choose one with {Option.MODEL}")
    entry = entries[0]
    owner = entry.raw("owned_by")
    return entry, _OWNERS.get(owner.lower(), "") if isinstance(owner, str) else ""


def _aliases(entry: Fields) -> list[object]:
    found = entry.raw("aliases")
    return found if isinstance(found, list) else []


def _named(names: list[str]) -> str:
    shown = [safe_line(name, 80) for name in names[:_MOST_NAMES]]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(shown) or "none") + more


def _asked(network: Network, choice: EndpointChoice, path: str) -> Fields:
    """What a page beside the protocol says; nothing where it is not there."""
    nothing = Fields({}, choice.address.host, EndpointError)
    try:
        reply = network.request("GET", choice.address.root + path, within_s=ASK_S)
        if reply.status != _OK:
            return nothing
        return Fields(parse_json(reply.body), f"{choice.address.host}{path}", EndpointError)
    except (EndpointError, ValueError):
        return nothing


def _capacity(entry: Fields, props: Fields) -> int:
    """Slots of one sequence; 0 where nothing says it."""
    meta = entry.section_or_empty("meta")
    generation = props.section_or_empty("default_generation_settings")
    for fields, name in (
        (entry, "max_model_len"),
        (meta, "n_ctx"),
        (generation, "n_ctx"),
    ):
        if found := whole_or_none(fields, name):
            return found
    return 0


def _pictures(entry: Fields, props: Fields) -> bool | None:
    modalities = props.section_or_empty("modalities")
    if modalities.has("vision"):
        return modalities.flag("vision", default=False)
    meta = entry.section_or_empty("meta")
    if meta.has("pictures"):
        return meta.flag("pictures", default=False)
    architecture = entry.section_or_empty("architecture")
    inputs = architecture.raw("input_modalities")
    return "image" in inputs if isinstance(inputs, list) else None


def _efforts(entry: Fields) -> tuple[str, ...]:
    meta = entry.section_or_empty("meta")
    told = meta.texts("reasoning_efforts") if meta.has("reasoning_efforts") else ()
    return told or EFFORTS


def _sampling(props: Fields) -> SamplingSettings:
    """How the server chooses tokens where nobody says; Qwen's way where it does not tell."""
    told = props.section_or_empty("default_generation_settings").section_or_empty("params")
    if not told.has("temperature"):
        return QWEN_SAMPLING
    return SamplingSettings(
        temperature=told.real("temperature", least=0.0, most=100.0),
        top_k=max(told.whole("top_k", 0, least=-1, most=_MOST_CAPACITY), 0),
        top_p=told.real("top_p", 1.0, least=0.0, most=1.0),
        min_p=told.real("min_p", 0.0, least=0.0, most=1.0),
        presence_penalty=told.real("presence_penalty", 0.0, least=-2.0, most=2.0),
        repetition_penalty=told.real("repeat_penalty", 1.0, least=0.01, most=100.0),
    )


def _counting(network: Network, choice: EndpointChoice, model: str) -> Counting:
    """Try out how the server counts a short prompt."""
    ways: tuple[Counting, ...] = ("messages", "template")
    probe = {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": True}
    for way in ways:
        if count(network, choice, way, {"model": model, **probe}, within_s=ASK_S) is not None:
            return way
    return ""


def count(
    network: Network, choice: EndpointChoice, way: Counting, prompt: dict[str, Any], within_s: float
) -> int | None:
    """The tokens of a prompt that the fields `prompt` make, as the server counts them in its `way`;
    None where it does not."""
    root = choice.address.root

    def asked(path: str, body: dict[str, Any]) -> Fields:
        reply = network.request("POST", root + path, body, within_s=within_s)
        if reply.status != _OK:
            raise EndpointError(f"{path} answers {reply.status}")
        return Fields(parse_json(reply.body), path, EndpointError)

    try:
        if way == "messages":
            return whole_or_none(asked("/tokenize", prompt), "count")
        if way == "template":
            text = asked("/apply-template", prompt).text("prompt")
            body = {"content": text, "add_special": True, "parse_special": True}
            tokens = asked("/tokenize", body).raw("tokens")
            return len(tokens) if isinstance(tokens, list) else None
    except (EndpointError, ValueError):
        return None
    return None
