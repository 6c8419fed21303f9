"""A conversation: what the user does to its tree of turns, and the answers of the model.

Composes a backend that computes and a journal that keeps; computes and stores nothing itself.
A question is kept when its answer begins to be computed, an answer while it is written.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from q35chat.chat.backend import ChatBackend
from q35chat.chat.comparison import Comparison, LoadOther
from q35chat.chat.events import Event, Finished, Notice, as_generator
from q35chat.chat.history.journal import Journal
from q35chat.chat.history.recorder import AnswerRecorder
from q35chat.chat.history.records import TurnRecord, new_id
from q35chat.chat.history.tree import ids_are_ours, in_prompt, oldest, prompt_turns, steps_of
from q35chat.chat.service import DropPlan, Forecast, ModelInfo, Step, TreePlace
from q35chat.chat.slots import SlotCounts
from q35chat.chat.summary import Summariser
from q35chat.chat.text_files import TextFile, read_text_file
from q35chat.chat.turn.lock import StoppableTurn, TurnLock
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.errors import Q35Error, StoreError, UsageError
from q35chat.text import now

EDITED = "edited"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The turns to read, the answer to add to, and a question that is not kept yet.

    The answer says with which settings it is generated.
    """

    path: tuple[TurnRecord, ...]
    answer: TurnRecord
    question: TurnRecord | None = None


class Conversation:
    """One open conversation over a journal; `backend` is what computes."""

    def __init__(
        self, backend: ChatBackend, journal: Journal, lock: TurnLock, *, reads_ahead: bool = True
    ) -> None:
        self._reads_ahead = reads_ahead
        self.backend = backend
        self._journal = journal
        self._turn_lock = lock
        self._run = StoppableTurn()
        self._makes_prompt = False
        self._slots = SlotCounts(backend, journal)

    def over(self, backend: ChatBackend) -> Conversation:
        """The same conversation, answered by another model."""
        return type(self)(backend, self._journal, self._turn_lock, reads_ahead=self._reads_ahead)

    @property
    def id(self) -> str:
        """Names the conversation in the store."""
        return self._journal.record.id

    @property
    def kept_as(self) -> str | None:
        """Names the conversation in the store; None where it is in memory alone."""
        return self.id if self._journal.is_kept else None

    def forgo_store(self) -> None:
        """Go on in memory alone."""
        self._journal.forgo_store()

    @property
    def title(self) -> str:
        """What the user called it, or its first words."""
        return self._journal.record.title

    @property
    def summary(self) -> str:
        """What was said before, where this goes on from another conversation; else empty."""
        return self._journal.record.summary

    @property
    def model(self) -> ModelInfo:
        """The model that answers."""
        return self.backend.model

    @property
    def steps(self) -> Sequence[Step]:
        """The turns of the branch being read; an answer joins them when it has ended."""
        view = self._journal.view
        steps = steps_of(view.path())
        if not steps:
            return ()
        branch, branches = view.place()
        return (*steps[:-1], replace(steps[-1], branch=branch, branches=branches))

    @property
    def used_slots(self) -> int:
        """Slots that the branch being read takes, or will take once it is read again, as they were
        counted last."""
        return self._slots.of_branch()

    def count_slots(self) -> None:
        """Count the slots of the branch being read; for a worker thread."""
        self._slots.count()

    def look_again(self) -> None:
        """Take over what another process wrote. Raises StoreError if it was deleted."""
        self._journal.refresh()
        self._slots.count_soon()

    def flush(self) -> str:
        """Wait for what is written and counted in the background. Why something could not be
        written, or empty."""
        problem = self._journal.flush()
        self._slots.wait()
        return problem

    def settings(self) -> ChatSettings:
        """What the next turn is generated with."""
        return self._journal.record.settings

    def change_settings(self, settings: ChatSettings) -> None:
        """Use `settings` from the next turn on. Raises StoreError when they cannot be saved."""
        self._journal.change_settings(settings)
        self._slots.count_soon()

    def attach(self, path: Path) -> Attachment:
        """Load, check and measure a picture. Raises PictureError."""
        return self.backend.attach(path, self.settings().max_image_tokens)

    def read_file(self, path: Path) -> TextFile:
        """The text of a file, and what it would take in a question. Raises FileError."""
        return self.measured(read_text_file(path))

    def measured(self, file: TextFile) -> TextFile:
        """The same file with its slots."""
        return replace(file, slots=self._slots.of_text(file.block))

    def forecast(
        self, text: str, attachments: Sequence[Attachment] = (), edited: str | None = None
    ) -> Forecast:
        """What sending this draft would take, exactly, or putting it beside the turn `edited`."""
        return self._slots.forecast(Turn("user", text, tuple(attachments)), edited)

    def send(
        self,
        text: str,
        attachments: Sequence[Attachment] = (),
        *,
        settings: ChatSettings | None = None,
    ) -> Iterator[Event]:
        """Ask something, perhaps with `settings` that are for this turn alone.

        Raises CapacityError, and then the question is not kept.
        """
        turn = Turn("user", text, tuple(attachments))
        return self._answer(lambda: self._asked(turn, self._journal.record.head, settings))

    def regenerate(self, step_id: str | None = None) -> Iterator[Event]:
        """Answer the last question, or that of the turn `step_id`, once more beside the first."""
        asked = step_id or self._journal.record.head
        return self._answer(lambda: self._asked_again(asked))

    def edit(
        self, step_id: str, text: str, attachments: Sequence[Attachment] = ()
    ) -> Iterator[Event]:
        """Put another turn beside an earlier one: a question is answered, an answer just kept."""
        return self._answer(lambda: self._asked_edited(step_id, text, tuple(attachments)))

    def continue_answer(self) -> Iterator[Event]:
        """Go on with an answer that was stopped or cut."""
        return self._answer(self._gone_on_with)

    def cancel(self) -> None:
        """Ask the running turn to stop after its current step. Safe at any time."""
        self._run.stop()
        if self._makes_prompt:
            self.backend.interrupt()

    def compared(self, load: LoadOther) -> Comparison:
        """The last question, to be answered by the model that `load` gives, too. Raises UsageError
        where there is none."""
        path = self._prompt_path()
        if path and path[-1].turn.role == "assistant":
            path = path[:-1]
        if not path:
            raise UsageError("There is no question to compare answers of. Ask one first.")
        settings = self.settings().with_summary(self.summary)
        return Comparison(path, settings, self._turn_lock, load, self._keep_beside)

    def _keep_beside(self, answer: TurnRecord) -> None:
        self._journal.add(answer)
        self._slots.count()

    def plan_drop(self, pairs: int) -> DropPlan:
        """What `drop_oldest` would do. Raises UsageError when there are not so many."""
        return self._slots.plan_drop(pairs)

    def drop_oldest(self, pairs: int) -> None:
        """Leave the oldest `pairs` questions with their answers out of the prompt from now on."""
        dropped = oldest(self._prompt_path(), pairs)
        questions = [record for record in dropped if record.turn.role == "user"]
        changed = [replace(record, left_out=True) for record in questions]
        self._journal.replace(changed)
        self._slots.count_soon()

    def choose_branch(self, branch: int) -> None:
        """Read the branch number `branch` (from 0) of all, to its end."""
        ends = self._journal.view.tree.ends
        if not 0 <= branch < len(ends):
            raise UsageError(f"This chat has no version {branch + 1}, only {len(ends)}.")
        self._journal.read_to(ends[branch])
        self._slots.count_soon()

    def places(self) -> tuple[TreePlace, ...]:
        """All turns of all versions, each before what follows it."""
        view = self._journal.view
        shown = {turn.id for turn in view.path()}
        return tuple(
            TreePlace(record.id, record.turn.role, record.turn.text, forks, record.id in shown)
            for record, forks in view.tree.walk()
        )

    def choose_turn(self, step_id: str) -> None:
        """Read the branch of the turn `step_id`, to its end; one that is gone changes nothing."""
        view = self._journal.view
        if step_id in view.tree and step_id not in {turn.id for turn in view.path()}:
            self._journal.read_to(view.tree.end_of(step_id))
            self._slots.count_soon()

    def summarise(self, use: Callable[[str], None]) -> Iterator[Event]:
        """The model's summary of this branch; `use` gets the text unless it was stopped.

        Nothing of it is kept in this conversation.
        """
        self._run = run = StoppableTurn()
        return run.follow(self._summarising(run, use))

    def can_be_summarised(self) -> bool:
        """Whether a summary of this branch has room to be written; for a worker thread."""
        summariser = Summariser(self.backend, self.settings(), lambda: False, self.summary)
        try:
            return summariser.has_room(self._turns(self._prompt_path()))
        except Q35Error:
            return False

    def begin(self, title: str, settings: ChatSettings, summary: str) -> None:
        """Store a conversation that goes on from `summary`. Raises StoreError."""
        self._journal.begin(title, settings, summary)

    def retitle(self, title: str) -> None:
        """Show a title that the store already has."""
        self._journal.retitle(title)

    def settle(self, stop: threading.Event, *, complete: bool = True) -> None:
        """What the model does between two turns: bring back what was kept of this branch, get ready
        for a follow-up where the last answer is `complete`, keep its state."""
        turns = self._turns(self._prompt_path())
        if complete and (turns[-1].role == "assistant" if turns else self.summary):
            settings = self._journal.record.prompt_settings
            self.backend.read_ahead(turns, settings, stop.is_set)
        self.keep_state(stop.is_set)

    def keep_state(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Keep for later processes what the model's state holds of this branch, if it is stored.
        Between turns only; where that fails, more is read later."""
        turns = self._turns(self._prompt_path())
        if not (turns or self.summary) or should_stop() or not self._journal.is_stored():
            return
        settings, alike = self._journal.record.prompt_settings, not self.summary
        try:
            self.backend.keep(turns, settings, self.id, should_stop, shared=alike)
        except Q35Error as error:
            _log.info("the state of chat %s is not kept: %s", self.id, error)

    def _summarising(self, run: StoppableTurn, use: Callable[[str], None]) -> Generator[Event]:
        with self._turn_lock.passing(run):
            summariser = Summariser(self.backend, self.settings(), run.stopped, self.summary)
            text, finished = yield from summariser.run(self._turns(self._prompt_path()))
            if finished.reason != "cancelled":
                use(text)
            yield finished

    def _answer(self, prepare: Callable[[], TurnRequest | None]) -> Iterator[Event]:
        self._run = run = StoppableTurn()
        return run.follow(self._answering(run, prepare))

    def _answering(
        self, run: StoppableTurn, prepare: Callable[[], TurnRequest | None]
    ) -> Generator[Event]:
        """The events of a turn; when it ends, however it does, its slots are counted."""
        finished: Finished | None = None
        with self._turn_lock.passing(run), self._journal.answering():
            try:
                self._journal.refresh()
                if request := prepare():
                    finished = yield from self._recording(run, request)
                else:
                    yield from self._news()
            finally:
                self._slots.count()
            if finished is not None:
                yield finished
        if self._reads_ahead and finished is not None:
            self._turn_lock.when_idle(partial(self.settle, complete=finished.reason == "stop"))

    def _recording(
        self, run: StoppableTurn, request: TurnRequest
    ) -> Generator[Event, None, Finished | None]:
        """All events but `Finished`, the answer written beside them."""
        settings = (request.answer.settings or self.settings()).with_summary(self.summary)
        running = self.backend.run(self._turns(request.path), settings, run.stopped)
        finished: Finished | None = None
        answer = AnswerRecorder(request.answer, self._journal.stream)
        with closing(as_generator(running)) as events:
            self._makes_prompt = True
            try:
                first = next(events)
            finally:
                self._makes_prompt = False
            if request.question is not None:
                self._journal.add(request.question)
            try:
                with closing(answer):
                    for event in chain((first,), events):
                        answer.take(event)
                        if isinstance(event, Finished):
                            finished = event
                            continue
                        yield event
                        yield from self._news()
                        if trouble := answer.problem():
                            yield _unsaved(trouble)
            except Exception as error:
                answer.end(None, str(error))
                raise
            except BaseException:  # the consumer went away
                answer.end("cancelled")
                raise
            finally:
                problem = self._keep(answer)
        if problem:
            yield _unsaved(problem)
        return finished

    def _news(self) -> Iterator[Notice]:
        if news := self._journal.news():
            yield Notice(news)

    def _keep(self, answer: AnswerRecorder) -> str:
        """Keep what there is of an answer; why that failed, or empty."""
        try:
            if answer.started:
                self._journal.keep(answer.record())
        except StoreError as error:
            return str(error)
        return ""

    def _asked(
        self, turn: Turn, parent: str | None, settings: ChatSettings | None = None
    ) -> TurnRequest:
        """Ask `turn` after the turn `parent`, with `settings` or those of the conversation."""
        question = TurnRecord(new_id(), parent, turn, now())
        path = (*in_prompt(self._journal.view.tree.path(parent)), question)
        answer = self._empty_answer(question.id)
        return TurnRequest(path, replace(answer, settings=settings or answer.settings), question)

    def _asked_again(self, step_id: str | None) -> TurnRequest:
        """Ask the question of a turn once more. Raises UsageError when there is none."""
        view = self._journal.view
        path = view.path() if step_id is None else view.tree.path(self._journal.known(step_id).id)
        if path and path[-1].turn.role == "assistant":
            path = path[:-1]
        if not path:
            raise UsageError("There is no question to answer again. Ask one first.")
        question = path[-1]
        if question.left_out:
            return self._asked(question.turn, question.parent)
        return TurnRequest(in_prompt(path), self._empty_answer(question.id))

    def _asked_edited(
        self, step_id: str, text: str, pictures: tuple[Attachment, ...]
    ) -> TurnRequest | None:
        """Ask an edited question beside the first one; an edited answer is only kept."""
        record = self._journal.known(step_id)
        if record.turn.role == "user":
            return self._asked(Turn("user", text, pictures), record.parent)
        turn = Turn("assistant", text, finish="stop")
        self._journal.add(TurnRecord(new_id(), record.parent, turn, now(), note=EDITED))
        return None

    def _gone_on_with(self) -> TurnRequest:
        """Go on with the last answer. Raises UsageError when it is complete or left out."""
        path = self._journal.view.path()
        if not path or path[-1].turn.role != "assistant":
            raise UsageError("There is no answer to go on with. Regenerate to get one.")
        answer = path[-1]
        turn = answer.turn
        if turn.finish == "stop" and turn.token_ids:
            raise UsageError("The last answer is complete. Ask to go on, or regenerate.")
        prompt = in_prompt(path)
        if not prompt:
            raise UsageError("The last answer is left out of the prompt. Ask again.")
        begun = turn.text or turn.reasoning or turn.token_ids
        ours = ids_are_ours(answer, self.backend.vocabulary)
        extended = replace(
            answer,
            turn=turn if ours else replace(turn, token_ids=()),
            model=self.backend.model.name,
            tokenizer=self.backend.vocabulary if ours else "",
            settings=self._journal.record.settings,
            usage=None,
        )
        return TurnRequest(prompt if begun else prompt[:-1], extended)

    def _empty_answer(self, question: str) -> TurnRecord:
        return TurnRecord(
            id=new_id(),
            parent=question,
            turn=Turn("assistant", ""),
            created=now(),
            model=self.backend.model.name,
            tokenizer=self.backend.vocabulary,
            settings=self._journal.record.settings,
        )

    def _prompt_path(self) -> tuple[TurnRecord, ...]:
        return in_prompt(self._journal.view.path())

    def _turns(self, path: Sequence[TurnRecord]) -> tuple[Turn, ...]:
        return prompt_turns(path, self.backend.vocabulary)


def _unsaved(problem: str) -> Notice:
    return Notice(f"This answer is not saved yet: {problem}")
