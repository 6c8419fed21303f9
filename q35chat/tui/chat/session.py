"""The session: the conversation that is open, what it is doing, and what waits for it.

Owns the one state of the chat, the queue of one message, the running turn and its meter, and what
is said beside the conversation. Knows no widget; the screen shows what stands here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event
from q35chat.chat.service import ModelInfo, Step
from q35chat.chat.workspace import Workspace
from q35chat.tui.chat.meter import WARN_AT, Meter
from q35chat.tui.chat.running_turn import Batch, RunningTurn, pacer_for
from q35chat.tui.text import count, slots

SessionState = Literal["loading", "ready", "running", "stopping", "failed"]
"""`loading`: a model or another chat is on its way, the one on screen stays. `ready`: a
conversation is there and nothing runs. `running`, then perhaps `stopping`: a turn. `failed`:
nothing is on its way and there is no conversation."""


@dataclass(frozen=True, slots=True)
class NoticeText:
    """A quiet line: what the engine says of the turn, else how full the capacity is."""

    text: str = ""
    engine: bool = False


class Session:
    """`opening`: what loads is another chat, the model stays. `asking`: what loads is a server's
    model, which is asked about itself. `queued`: Enter was pressed before
    everything was there; the draft is sent by itself then. `remark` takes the status line until
    something changes. `follow_up` is opened once the running turn has ended. `earlier` chats are
    there to come back to."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.conversation: Conversation | None = None
        self.follow_up: Conversation | None = None
        self.state: SessionState = "loading"
        self.opening = False
        self.asking = workspace.remote
        self.queued = False
        self.turn: RunningTurn | None = None
        self._vision_pace: dict[str, float] = {}
        self.meter = self._fresh_meter()
        self.notice = NoticeText()
        self._noticed = False
        self.remark = ""
        self.earlier = 0

    @property
    def current(self) -> Conversation:
        """The open conversation, for a command that is run only where there is one."""
        assert self.conversation is not None
        return self.conversation

    @property
    def loading(self) -> bool:
        """Whether a model or a chat is on its way."""
        return self.state == "loading"

    @property
    def running(self) -> bool:
        """Whether a turn runs, be it stopping."""
        return self.state in {"running", "stopping"}

    @property
    def available(self) -> Conversation | None:
        """The open conversation, where its model is there and no other one is on its way."""
        return None if self.loading else self.conversation

    @property
    def model(self) -> ModelInfo | None:
        """The model that answers; None while none does."""
        stays = self.opening or not self.loading
        return self.conversation.model if self.conversation is not None and stays else None

    @property
    def steps(self) -> Sequence[Step]:
        """The open conversation's turns."""
        return self.conversation.steps if self.conversation is not None else ()

    @property
    def questions(self) -> list[Step]:
        """The questions that the model reads, oldest first."""
        return [step for step in self.steps if step.turn.role == "user" and not step.left_out]

    def load(self, *, opening: bool = False, asking: bool = False) -> None:
        """A model is on its way, or where it stays another chat."""
        self.state, self.opening, self.asking = "loading", opening, asking

    def loaded(self) -> None:
        """What was on its way is there, or did not come."""
        self.state, self.opening = ("ready" if self.conversation else "failed"), False

    def show(self, conversation: Conversation) -> None:
        """Another conversation is the open one."""
        self.conversation = conversation
        self.notice, self._noticed = NoticeText(), False
        self.meter = self._fresh_meter()
        self.meter.idle(conversation)

    def _fresh_meter(self) -> Meter:
        return Meter(vision_pace=self._vision_pace)

    def begin(self, events: Iterator[Event]) -> RunningTurn:
        """A turn starts: what was said about the last one goes, and nothing waits any more."""
        target = self.meter.model.target if self.meter.model else ""
        self.state, self.queued = "running", False
        self.notice, self._noticed = NoticeText(), False
        self.turn = RunningTurn(events, pacer_for(target))
        return self.turn

    def stop(self) -> None:
        """Ask the running turn to stop."""
        if self.running and self.conversation is not None:
            self.state = "stopping"
            self.conversation.cancel()

    def frame(self) -> Batch | None:
        """What the turn brought since the last frame; None while no frame is due."""
        batch = self.turn.frame() if self.turn is not None else None
        if batch is not None:
            self.meter.take(batch)
            for text in batch.notices:
                self.notice, self._noticed = NoticeText(text, engine=True), True
            if batch.tokens:
                self.warn()
        return batch

    def end(self) -> None:
        """The turn has ended."""
        self.state, self.turn = "ready", None

    def warn(self, *, panel: bool = False) -> None:
        """Say that the capacity is nearly used, unless a panel on screen says it already. What the
        engine said stays until the next turn."""
        capacity = self.meter.capacity
        if panel:
            self.notice = NoticeText()
        elif capacity.over and not capacity.turn:
            more = f"{slots(capacity.over)} more than the {count(capacity.total)} of this model"
            self.notice = NoticeText(f"This chat holds {more} · /drop leaves out the oldest turns")
        elif capacity.total and capacity.used >= WARN_AT * capacity.total:
            share = f"{capacity.used / capacity.total:.0%}"
            text = f"{share} of the capacity is used · {count(capacity.free)} slots are left"
            self.notice = NoticeText(text)
        elif not self._noticed:
            self.notice = NoticeText()
