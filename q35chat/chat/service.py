"""What a screen asks of a conversation. `tui` draws this and knows nothing below it.

Every method but `events`-yielding ones returns at once and may be called from any thread;
the iterators compute while they are consumed and belong in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from q35chat.chat.events import Event, Usage
from q35chat.chat.values import Attachment, ChatSettings, Turn


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the meters name: model, where it runs, how it was exported."""

    name: str
    target: str
    precision: str
    device: str
    capacity: int
    is_demo: bool


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
class DropPlan:
    """What leaving out the oldest questions would do: which turns, and the cost in tokens.

    `reread_tokens` of those that stay have to be read again before the next answer.
    """

    steps: tuple[Step, ...]
    freed_slots: int
    reread_tokens: int
    slots_free: int


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One row of the session list. `turns` counts the questions of the branch being read; none were
    asked yet in one that was begun from a summary."""

    id: str
    title: str
    updated: float
    turns: int


class Conversation(Protocol):
    """One open conversation and the model behind it."""

    @property
    def id(self) -> str:
        """Names the conversation in the store."""

    @property
    def title(self) -> str:
        """What the user called it, or its first words."""

    @property
    def summary(self) -> str:
        """What was said before, where this goes on from another conversation; else empty."""

    @property
    def model(self) -> ModelInfo:
        """The model that answers."""

    @property
    def steps(self) -> Sequence[Step]:
        """The turns of the branch being read; an answer joins them when it has ended."""

    @property
    def used_slots(self) -> int:
        """Slots that this branch takes, as they were counted last: at the end of a turn, or a
        moment after it was changed otherwise."""

    def settings(self) -> ChatSettings:
        """What the next turn is generated with."""

    def change_settings(self, settings: ChatSettings) -> None:
        """Use `settings` from the next turn on."""

    def attach(self, path: Path) -> Attachment:
        """Load, check and measure a picture. Raises PictureError."""

    def forecast(
        self, text: str, attachments: Sequence[Attachment], edited: str | None = None
    ) -> Forecast:
        """What sending this draft would take, perhaps in the place of the question `edited`."""

    def send(self, text: str, attachments: Sequence[Attachment] = ()) -> Iterator[Event]:
        """Ask something. CapacityError comes before the first event and keeps nothing."""

    def regenerate(self, step_id: str | None = None) -> Iterator[Event]:
        """Answer the last question, or that of `step_id`, once more beside the first answer."""

    def edit(
        self, step_id: str, text: str, attachments: Sequence[Attachment] = ()
    ) -> Iterator[Event]:
        """Put another turn beside an earlier one: a question is answered, an answer just kept."""

    def continue_answer(self) -> Iterator[Event]:
        """Go on with an answer that was stopped or cut. Raises UsageError when it is complete."""

    def cancel(self) -> None:
        """TurnRequest the running turn to stop after its current step. Safe at any time."""

    def plan_drop(self, pairs: int) -> DropPlan:
        """What `drop_oldest` would do."""

    def drop_oldest(self, pairs: int) -> None:
        """Leave out the oldest `pairs` questions with their answers from now on."""

    def choose_branch(self, branch: int) -> None:
        """Read branch number `branch` (from 0) of all, to its end."""


class Workspace(Protocol):
    """All conversations over one loaded model."""

    def load(self) -> None:
        """Load the model; slow, for a worker thread. Raises Q35Error."""

    @property
    def model(self) -> ModelInfo:
        """The model that answers."""

    def restart(self) -> None:
        """Load the model again, whatever became of it; slow. Raises Q35Error."""

    def use(self, folder: Path) -> None:
        """Load the bundle in `folder` and let it answer from now on; slow.

        Raises Q35Error, and then the present model stays.
        """

    def reopen(self, conversation: Conversation) -> Conversation:
        """The same conversation over the model as it is loaded now, stored or not."""

    @property
    def message(self) -> str:
        """What the user should know about the store, if anything."""

    def new(self) -> Conversation:
        """An empty conversation; it is stored with its first question."""

    def new_from_summary(self, conversation: Conversation) -> tuple[Conversation, Iterator[Event]]:
        """A new conversation, and the events of the model writing its summary of the old one."""

    def open(self, session_id: str) -> Conversation:
        """A stored conversation, by its id or the beginning of it. Raises StoreError."""

    def sessions(self, query: str = "") -> Sequence[SessionSummary]:
        """Conversations, latest first; with a query those that hold all its words."""

    def rename(self, session_id: str, title: str) -> None:
        """Give a conversation another title."""

    def delete(self, session_id: str) -> None:
        """Delete a conversation for good."""

    def export_markdown(self, session_id: str, folder: Path) -> Path:
        """Write the branch being read as Markdown with its pictures beside it."""
