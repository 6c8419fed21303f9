"""Slots of a conversation and of what the user is about to do: exact, and nothing runs for them.

Counts come from the backend's plans, which render and tokenise the conversation. Those of the
branch itself are counted by whoever changed it, or in the background, and kept for whoever shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from q35chat.chat.backend import ChatBackend
from q35chat.chat.history.journal import Journal
from q35chat.chat.history.records import TurnRecord
from q35chat.chat.history.tree import ConversationView, in_prompt, oldest, prompt_turns, steps_of
from q35chat.chat.service import DropPlan, Forecast
from q35chat.chat.values import ChatSettings, Turn
from q35chat.chat.worker import Worker
from q35chat.errors import Q35Error
from q35chat.text import pluralise

_COUNTED = 8
"""Characters a slot that are counted of a text: no text has more in the mean."""

_Branch = tuple[tuple[TurnRecord, ...], ChatSettings]


@dataclass(frozen=True, slots=True)
class _Counts:
    """Slots of a branch as it is, and as it is kept below another question, and of its pictures.

    Below another question it is smaller where the template drops the reasoning of answers.
    """

    live: int = 0
    kept: int = 0
    pictures: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """The counts of the branch that was read to `head`."""

    head: str | None = None
    branch: _Branch | None = None
    counts: _Counts = _Counts()


class SlotCounts:
    """Counts for one conversation."""

    def __init__(self, backend: ChatBackend, journal: Journal) -> None:
        self._backend = backend
        self._journal = journal
        self._known = _Known()
        self._counting = Worker()

    def of_branch(self) -> int:
        """Slots of the branch being read as counted last; 0 when a picture of it is gone.

        Returns at once: until a changed branch is counted, what its last answer told. The last
        token of an answer that filled the capacity has no slot; what was said over a larger
        capacity can be more than there is.
        """
        known, view = self._known, self._journal.view
        live, head = known.counts.live, view.record.head
        usage = view.tree[head].usage if head is not None else None
        if usage is not None and head != known.head:
            live = usage.capacity_used
        capacity = self._backend.model.capacity
        made_here = usage is not None and usage.capacity_total <= capacity
        return min(live, capacity) if made_here else live

    def count(self) -> None:
        """Count the branch being read, if it has changed. Computes: for a worker thread."""
        self._counts(self._journal.view)

    def count_soon(self) -> None:
        """`count` in the background."""
        self._counting.soon(lambda _: self.count())

    def wait(self) -> None:
        """Wait for what is counted in the background."""
        self._counting.wait()

    def forecast(self, draft: Turn, edited: str | None = None) -> Forecast:
        """What sending `draft` takes on top of the branch as the template would keep it.

        With `edited`, on top of what stands before the turn with that id.
        """
        before = None if edited is None else self._journal.known(edited).parent
        view = self._journal.view
        settings = view.record.prompt_settings
        path = in_prompt(view.path() if edited is None else view.tree.path(before))
        try:
            plan = self._backend.plan((*self._turns(path), draft), settings)
            summary = 0
            if view.record.summary and not path:
                without = self._backend.plan((draft,), view.record.settings)
                summary = plan.prompt_tokens - without.prompt_tokens
        except Q35Error as error:
            return Forecast(0, 0, self.of_branch(), 0, fits=False, reason=str(error))
        counts = self._counts(view) if edited is None else self._count(path, settings)
        used = min(counts.live, counts.kept)
        needed, available = plan.prompt_tokens - used, plan.capacity - used
        pictures = plan.image_tokens - counts.pictures
        fits, left = plan.slots_free > 0, max(0, plan.slots_free)
        forecast = Forecast(needed, pictures, used, left, fits, summary_slots=summary)
        if fits:
            return forecast
        wanted = f"{pluralise(needed, 'slot')}{forecast.of_which}"
        room = f"{available:,} are free"
        if available < 0:
            room = (
                f"what was said before is {-available:,} over the {plan.capacity:,} of this model"
            )
        reason = f"needs {wanted} and one for the answer, {room}"
        return replace(forecast, reason=reason)

    def of_text(self, text: str) -> int:
        """Slots that a text takes in a question; about so many where it is too long to count. For a
        worker thread."""
        settings, capacity = self._journal.record.settings, self._backend.model.capacity
        plans = self._backend.plan((Turn("user", ""),), settings)
        counted = text[: capacity * _COUNTED]
        with_text = self._backend.plan((Turn("user", counted),), settings)
        slots = with_text.prompt_tokens - plans.prompt_tokens
        return slots if counted == text else round(slots * len(text) / len(counted))

    def plan_drop(self, pairs: int) -> DropPlan:
        """What leaving out the oldest `pairs` questions does. Raises UsageError: not so many."""
        view = self._journal.view
        path, settings = in_prompt(view.path()), view.record.prompt_settings
        dropped = oldest(path, pairs)
        before = self._backend.plan(self._turns(path), settings)
        kept = self._turns(path[len(dropped) :])
        after = self._backend.plan(kept, settings) if kept else None
        prompt = after.prompt_tokens if after else 0
        return DropPlan(
            steps=steps_of(dropped),
            freed_slots=before.prompt_tokens - prompt,
            reread_tokens=after.new_tokens if after else 0,
            slots_free=before.capacity - prompt,
        )

    def _counts(self, view: ConversationView) -> _Counts:
        known = self._known
        branch = (in_prompt(view.path()), view.record.prompt_settings)
        counts = known.counts if known.branch == branch else self._count(*branch)
        self._known = _Known(view.record.head, branch, counts)
        return counts

    def _count(self, path: tuple[TurnRecord, ...], settings: ChatSettings) -> _Counts:
        if not path:
            return _Counts()
        try:
            turns = self._turns(path)
            followed = self._backend.plan((*turns, Turn("user", "")), settings)
            live = self._backend.plan(turns, settings).prompt_tokens
        except Q35Error:
            return _Counts()
        return _Counts(live, followed.prompt_tokens, followed.image_tokens)

    def _turns(self, path: Sequence[TurnRecord]) -> tuple[Turn, ...]:
        return prompt_turns(path, self._backend.vocabulary)
