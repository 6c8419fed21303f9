"""What can be set: the keys of the file as values, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from q35chat.user_input import GraphicsPreference, KeyStyle, Speculate


@dataclass(frozen=True, slots=True)
class EndpointEntry:
    """A server that the user named, `[endpoint.NAME]` in the file."""

    url: str = ""
    """Where it is: http://HOST:PORT/v1."""

    model: str = ""
    """The model's name there; empty: the only one that it has."""

    api_key_env: str = ""
    """The environment variable that holds the key."""

    api_key_keyring: str = ""
    """The name under which the system's keyring has the key, in the service `q35chat`."""

    capacity: int = 0
    """Slots of a chat, where the server does not say it."""

    wait_s: int = 600
    """The most seconds until the first token."""

    ca_file: str = ""
    """The certificates of who signs the server's own, where the system does not know them."""


@dataclass(frozen=True, slots=True)
class PersonaEntry:
    """How one kind of chat begins, `[persona.NAME]` in the file; what is None is as everywhere."""

    system: str | None = None
    """The system prompt."""

    thinking: bool | None = None
    """Whether the model reasons before it answers."""

    thinking_budget: int | None = None
    """The most tokens of its reasoning."""

    sampling: Mapping[str, float] = field(default_factory=dict)
    """Sampling options, as the command line names them with `_`, in place of the checkpoint's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user sets once."""

    model_dir: str = ""
    """The bundle to use when none is given; empty: `out/`, else the demo."""

    max_image_tokens: int = 1024
    """The most tokens a picture may take."""

    thinking: bool = False
    """Whether the model reasons before it answers."""

    thinking_budget: int | None = None
    """The most tokens of its reasoning."""

    reasoning_effort: str = ""
    """How hard it thinks, where its chat template has words for it."""

    preserve_thinking: bool | None = None
    """Whether earlier reasoning stays in the prompt, where the chat template lets one choose."""

    max_new_tokens: int | None = None
    """The most tokens of an answer; None: up to the capacity."""

    speculate: Speculate = "auto"
    """Whether to guess the next tokens and compute several at once: same answers, sooner."""

    system: str = ""
    """The system prompt of new chats."""

    default_persona: str = ""
    """The persona of new chats."""

    theme: str = "q35-dark"
    """The colours of the screen, by the name that F2 shows."""

    pictures: GraphicsPreference = "auto"
    """How pictures are drawn; `auto` is the best that the terminal is known to do."""

    notify: bool = True
    """Whether the terminal tells of a long answer that is complete while the user looks
    elsewhere."""

    details: bool = False
    """Whether the meters also show what a step is made of."""

    sampling: Mapping[str, float] = field(default_factory=dict)
    """Sampling options of new chats, `[sampling]` in the file, in place of the checkpoint's."""

    keys: KeyStyle = "usual"
    """Whose keys edit the message: `readline`'s, or `vi`'s, where they are not the usual ones."""

    shortcuts: Mapping[str, str] = field(default_factory=dict)
    """Keys like `ctrl+r,f9` by the names of commands, `[shortcuts]` in the file, in place of the
    commands' own."""

    persona: Mapping[str, PersonaEntry] = field(default_factory=dict)
    """Ways to begin a chat, by the names under which a user chooses them."""

    endpoint: Mapping[str, EndpointEntry] = field(default_factory=dict)
    """Servers by the names under which a user chooses them."""
