"""Turns, attachments and settings as plain values. Identity and files are the store's concern."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from q35chat.chat.events import Finished, FinishReason
from q35chat.engine.rules import Constraint, SamplingSettings
from q35chat.text import safe_line

__all__ = [
    "DEFAULTS",
    "EFFORT",
    "HEADING",
    "PRESERVE",
    "Attachment",
    "ChatSettings",
    "Constraint",
    "Persona",
    "Role",
    "SamplingSettings",
    "TemplateOffers",
    "ToolCall",
    "Turn",
    "TurnOptions",
]

Role = Literal["system", "user", "assistant", "tool"]
EFFORT, PRESERVE = "reasoning_effort", "preserve_thinking"
"""Variables of chat templates."""
HEADING = "What was said before, in short"
"""Above the summary of an earlier conversation."""
DEFAULTS = "default"
"""Names how chats begin without a persona."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """One picture: its original bytes and where the user had it (for display only)."""

    sha256: str
    name: str
    data: bytes = field(repr=False)
    width: int
    height: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model asked for; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. Pictures come before the text. An assistant turn keeps the model's own ids, and
    the `calls` that are not in its text; a turn of a tool is what a call gave."""

    role: Role
    text: str
    attachments: tuple[Attachment, ...] = ()
    reasoning: str = ""
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    calls: tuple[ToolCall, ...] = ()

    @classmethod
    def answer(cls, finished: Finished) -> Turn:
        """The turn that an answer becomes."""
        return cls(
            "assistant",
            finished.text,
            reasoning=finished.reasoning,
            token_ids=finished.token_ids,
            finish=finished.reason,
        )


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """What a program may want of one turn beside its settings.

    `max_tokens` limits all that is written, reasoning included; `top_logprobs` wants each token's
    logarithmic probability, with those of so many of the likeliest, and `prompt_logprobs` those of
    the prompt's tokens, too, which are then read one by one; `constraint` says which tokens the
    answer may go on with, and is of this turn alone.
    """

    max_tokens: int | None = None
    top_logprobs: int | None = None
    prompt_logprobs: bool = False
    constraint: Constraint | None = None


Tools = tuple[Mapping[str, Any], ...]
"""Tools as a chat template is given them: functions with their JSON schemas."""


@dataclass(frozen=True, slots=True)
class TemplateOffers:
    """`efforts` are the words for how hard to think, in the template's order; `preserves` tells
    that thoughts of earlier answers can be kept in the prompt or left out; `instructor` is the role
    of a system prompt."""

    efforts: tuple[str, ...] = ()
    preserves: bool = False
    instructor: str = "system"

    def chosen(self, effort: str, preserve: bool | None) -> dict[str, object]:
        """The variables for what was chosen, as far as the template understands it."""
        found: dict[str, object] = {}
        if effort in self.efforts:
            found[EFFORT] = effort
        if self.preserves and preserve is not None:
            found[PRESERVE] = preserve
        return found


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a turn is generated with. Limits are in tokens; None means up to capacity.

    `thinking_budget` limits the reasoning, `max_new_tokens` the answer after it. `loop_guard`
    ends reasoning, then the answer, that says the same over and over. `reasoning_effort` and
    `preserve_thinking` (of earlier answers, in the prompt) are for templates that offer them; empty
    and None leave it to the template.
    """

    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    system_prompt: str = ""
    thinking: bool = False
    thinking_budget: int | None = None
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    max_image_tokens: int = 1024
    loop_guard: bool = True
    reasoning_effort: str = ""
    preserve_thinking: bool | None = None

    def with_thinking(self, thinking: bool, budget: int | None = None) -> ChatSettings:
        """The same settings with reasoning on (at most `budget` tokens) or off."""
        return replace(self, thinking=thinking, thinking_budget=budget)

    def with_summary(self, summary: str) -> ChatSettings:
        """What a conversation that goes on from `summary`, if it is not empty, is generated
        with."""
        if not summary:
            return self
        parts = self.system_prompt.strip(), f"{HEADING}:\n{summary}"
        return replace(self, system_prompt="\n\n".join(filter(None, parts)))

    def with_changes(self, before: ChatSettings, after: ChatSettings) -> ChatSettings:
        """These settings, and in them whatever `after` says otherwise than `before`."""
        names = [one.name for one in fields(self)]
        changed = {name: getattr(after, name) for name in names}
        return replace(
            self, **{name: new for name, new in changed.items() if new != getattr(before, name)}
        )


@dataclass(frozen=True, slots=True)
class Persona:
    """A named way to go on in a chat: what is None, and every option not named, stays as it is."""

    name: str
    system_prompt: str | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What it changes, on one line."""
        parts = []
        if self.thinking_budget is not None:
            parts.append(f"thinks up to {self.thinking_budget:,} tokens")
        elif self.thinking is not None:
            parts.append("thinks" if self.thinking else "does not think")
        named = [] if self.name == DEFAULTS else self.sampling.items()
        parts += [f"{name.replace('_', ' ')} {value:g}" for name, value in named]
        if self.system_prompt:
            parts.append(f"“{safe_line(' '.join(self.system_prompt.split()), limit=60)}”")
        return " · ".join(parts) or "as chats begin"

    def over(self, settings: ChatSettings) -> ChatSettings:
        """`settings` with what this persona says in its place. A budget alone is thinking."""
        options: dict[str, Any] = dict(self.sampling)
        changes: dict[str, Any] = {"sampling": replace(settings.sampling, **options)}
        if self.system_prompt is not None:
            changes["system_prompt"] = self.system_prompt
        if self.thinking is not None or self.thinking_budget is not None:
            changes["thinking"] = self.thinking is not False
            changes["thinking_budget"] = self.thinking_budget
        return replace(settings, **changes)
