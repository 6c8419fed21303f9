"""A conversation in a few sentences, written by the model, to begin a new one with.

The oldest turns come first, as they are, so that the model's state may already hold them. What
does not fit with room for the summary follows in further parts, each told what was so far.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from q35chat.chat.backend import ChatBackend
from q35chat.chat.events import Event, Finished, Notice
from q35chat.chat.values import ChatSettings, Turn
from q35chat.errors import CapacityError, UsageError

REQUEST = (
    "Summarise our conversation so far in a few sentences, so that we can go on from the summary "
    "alone. Keep names, numbers, what the pictures showed, decisions and open questions. Write in "
    "the language of the conversation, and nothing but the summary."
)
MOST_TOKENS = 512
LEAST_TOKENS = 16


def quotation(heading: str, text: str) -> str:
    """`text` as a Markdown quotation under its heading; empty where there is no text."""
    if not text.strip():
        return ""
    lines = [f"*{heading}*", "", *text.strip().split("\n")]
    return "\n".join(f"> {line}".rstrip() for line in lines)


@dataclass(frozen=True, slots=True)
class Summariser:
    """Summarises turns with a backend; `settings` are those of the conversation, `earlier` is what
    it began with itself."""

    backend: ChatBackend
    settings: ChatSettings
    should_stop: Callable[[], bool]
    earlier: str = ""

    def run(self, turns: Sequence[Turn]) -> Generator[Event, None, tuple[str, Finished]]:
        """The events of all parts but `Finished`; returns the summary and the last `Finished`.

        Raises UsageError when there is nothing to summarise or the model wrote nothing.
        """
        groups = _groups(turns)
        if not groups:
            raise UsageError("There is nothing to summarise yet.")
        summary, begin = "", 0
        while True:
            settings = self._settings(summary or self.earlier)
            end = self._fitting(groups, begin, settings)
            part = [turn for group in groups[begin:end] for turn in group]
            finished = yield from self._part(part, settings)
            summary, begin = finished.text.strip() or summary, end
            if begin == len(groups) or finished.reason == "cancelled":
                break
            yield Notice(f"Summarised {begin} of {len(groups)} questions, going on.")
        if not summary and finished.reason != "cancelled":
            raise UsageError("The model wrote no summary. Start a new chat or drop old turns.")
        return summary, finished

    def has_room(self, turns: Sequence[Turn]) -> bool:
        """Whether `run` can read the turns: the longest question with its answer, too, leaves room
        for a few words about it. Plans, and so belongs in a worker thread."""
        groups = _groups(turns)
        longest = max(range(len(groups)), key=lambda place: _length(groups[place]), default=None)
        if longest is None:
            return False
        settings = self._settings(self.earlier)
        first = self._slots_free(groups[longest], settings)
        earlier = LEAST_TOKENS if longest else 0
        return first >= LEAST_TOKENS + earlier

    def _slots_free(self, turns: Sequence[Turn], settings: ChatSettings) -> int:
        return self.backend.plan((*turns, Turn("user", REQUEST)), settings).slots_free

    def _part(
        self, turns: Sequence[Turn], settings: ChatSettings
    ) -> Generator[Event, None, Finished]:
        request = (*turns, Turn("user", REQUEST))
        finished: Finished | None = None
        for event in self.backend.run(request, settings, self.should_stop):
            if isinstance(event, Finished):
                finished = event
            else:
                yield event
        if finished is None:
            raise UsageError("The summary ended without a result. Try again.")
        return finished

    def _settings(self, summary: str) -> ChatSettings:
        capacity = self.backend.model.capacity
        return replace(
            self.settings.with_thinking(False).with_summary(summary),
            max_new_tokens=max(min(MOST_TOKENS, capacity // 4), LEAST_TOKENS),
            stop=(),
        )

    def _fitting(self, groups: Sequence[Sequence[Turn]], begin: int, settings: ChatSettings) -> int:
        def too_large(end: int, room: int) -> bool:
            part = [turn for group in groups[begin:end] for turn in group]
            return self._slots_free(part, settings) < room

        room = settings.max_new_tokens or LEAST_TOKENS
        ends = range(begin + 1, len(groups) + 1)
        fitting = bisect.bisect_left(ends, True, key=lambda end: too_large(end, room))
        if fitting == 0 and too_large(begin + 1, LEAST_TOKENS):
            raise CapacityError(
                f"Question {begin + 1} with its answer leaves no room for a summary of it. "
                "Drop it from the prompt first, or start a new chat without a summary."
            )
        return begin + max(fitting, 1)


def _length(turns: Sequence[Turn]) -> int:
    """About how long they are, to find the longest."""
    pictures = sum(picture.tokens for turn in turns for picture in turn.attachments)
    return 4 * pictures + sum(len(turn.text) + len(turn.reasoning) for turn in turns)


def _groups(turns: Sequence[Turn]) -> list[list[Turn]]:
    groups: list[list[Turn]] = []
    for turn in turns:
        if turn.role == "user" or not groups:
            groups.append([])
        groups[-1].append(turn)
    return groups
