"""What a screen is told of conversations and of the model: plain values.

`conversation.Conversation` and `workspace.Workspace` give them. Every method of these but those
that yield events returns at once and may be called from any thread; the iterators compute while
they are consumed and belong in a worker thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from q35chat.chat.events import Usage
from q35chat.chat.values import Role, TemplateOffers, Turn


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the meters name: model, where it runs, how it was exported, what rounding kept of it,
    whether it sees `pictures`, and what its template `offers`.

    `remote` is the address of the server that answers, empty where the model runs here; then `load`
    says how busy it is, as it told last, and counts that nobody tells are `estimated`.
    """

    name: str
    target: str
    precision: str
    device: str
    capacity: int
    is_demo: bool
    kept: str = ""
    pictures: bool = True
    offers: TemplateOffers = field(default_factory=TemplateOffers)
    remote: str = ""
    load: str = ""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that could answer: its name in the list, its folder or its table in the settings, the
    `model` that its answers name, what is known of it in words, and whether a server has it."""

    name: str
    folder: Path
    model: str
    facts: str
    remote: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """What sending a draft would take, in slots.

    `turn_slots` hold `image_slots` and, where nothing was read yet of a conversation that goes on
    from a summary, `summary_slots`.
    """

    turn_slots: int
    image_slots: int
    used_slots: int
    left_for_answer: int
    fits: bool
    reason: str = ""
    summary_slots: int = 0

    @property
    def of_which(self) -> str:
        """What of the turn is not what is being written, like ` (30 picture)`; else empty."""
        parts = ((self.image_slots, "picture"), (self.summary_slots, "summary"))
        said = ", ".join(f"{slots:,} {what}" for slots, what in parts if slots)
        return f" ({said})" if said else ""


@dataclass(frozen=True, slots=True)
class Step:
    """A turn of the branch being read, with its id.

    The last one of a conversation says which branch that is (from 0) of how many, in the order
    in which they were begun. `note` holds the notices of the turn, `model` names who wrote an
    answer; a turn that is `left_out` is no longer in the prompt.
    """

    id: str
    turn: Turn
    branch: int = 0
    branches: int = 1
    note: str = ""
    usage: Usage | None = None
    left_out: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class TreePlace:
    """A turn in the tree of all versions of a conversation: behind how many `forks` it stands, and
    whether the branch being read has it."""

    id: str
    role: Role
    text: str
    forks: int
    shown: bool


@dataclass(frozen=True, slots=True)
class DropPlan:
    """What leaving out the oldest questions would do: which turns, and the cost in tokens.

    `reread_tokens` of those that stay have to be read again before the next answer.
    """

    steps: tuple[Step, ...]
    freed_slots: int
    reread_tokens: int
    slots_free: int


@dataclass(frozen=True, slots=True)
class ListedConversation:
    """A conversation as a list shows it. `turns` counts the questions of the branch being read;
    none were asked yet in one that was begun from a summary.

    `model` wrote its newest answer, after which it took `slots`; 0 where that is not known. Of what
    was searched, `excerpt` is the text around it, and `hit` names the turn; both are empty where
    only the title or the tags hold it.
    """

    id: str
    title: str
    updated: float
    turns: int
    model: str = ""
    slots: int = 0
    pinned: bool = False
    tags: tuple[str, ...] = ()
    excerpt: str = ""
    hit: str = ""
