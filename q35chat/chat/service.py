"""What a screen asks of a conversation. `tui` draws this and knows nothing below it.

Every method but `events`-yielding ones returns at once and may be called from any thread;
the iterators compute while they are consumed and belong in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from q35chat.chat.events import Event
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
    """What sending a draft would take, in slots."""

    turn_slots: int
    image_slots: int
    used_slots: int
    left_for_answer: int
    fits: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A turn in the conversation tree: its id, and its place among the answers to one question."""

    id: str
    turn: Turn
    branch: int = 0
    branches: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One row of the session list."""

    id: str
    title: str
    updated: float
    turns: int


class Conversation(Protocol):
    """One open conversation and the model behind it."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def model(self) -> ModelInfo: ...
    @property
    def steps(self) -> Sequence[Step]: ...
    @property
    def used_slots(self) -> int: ...

    def settings(self) -> ChatSettings: ...
    def change_settings(self, settings: ChatSettings) -> None: ...
    def attach(self, path: Path) -> Attachment:
        """Load, check and measure a picture. Raises PictureError."""

    def forecast(self, text: str, attachments: Sequence[Attachment]) -> Forecast: ...
    def send(self, text: str, attachments: Sequence[Attachment] = ()) -> Iterator[Event]: ...
    def regenerate(self) -> Iterator[Event]: ...
    def edit(
        self, step_id: str, text: str, attachments: Sequence[Attachment] = ()
    ) -> Iterator[Event]: ...
    def continue_answer(self) -> Iterator[Event]: ...
    def cancel(self) -> None:
        """Ask the running turn to stop after its current step. Safe at any time."""

    def drop_oldest(self, pairs: int) -> None:
        """Leave out the oldest `pairs` questions with their answers from now on."""

    def choose_branch(self, step_id: str, branch: int) -> None: ...


class Workspace(Protocol):
    """All conversations over one loaded model."""

    def load(self) -> None:
        """Load the model; slow, for a worker thread. Raises Q35Error."""

    @property
    def model(self) -> ModelInfo: ...
    def new(self) -> Conversation: ...
    def open(self, session_id: str) -> Conversation: ...
    def sessions(self, query: str = "") -> Sequence[SessionSummary]: ...
    def rename(self, session_id: str, title: str) -> None: ...
    def delete(self, session_id: str) -> None: ...
    def export_markdown(self, session_id: str, folder: Path) -> Path: ...
