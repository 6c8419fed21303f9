"""From what the user does to what the model is asked: which turns, and where the answer goes."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace

from q35chat.chat.backend import ChatBackend
from q35chat.chat.history.journal import Journal
from q35chat.chat.history.records import TurnRecord
from q35chat.chat.history.tree import ids_are_ours, in_prompt
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.errors import UsageError

EDITED = "edited"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The turns to read, the answer to add to, and a question that is not kept yet.

    The answer says with which settings it is generated.
    """

    path: tuple[TurnRecord, ...]
    answer: TurnRecord
    question: TurnRecord | None = None


class TurnRequests:
    """Makes the `TurnRequest`s of one conversation."""

    def __init__(self, backend: ChatBackend, journal: Journal) -> None:
        self._backend = backend
        self._journal = journal

    def new(
        self, turn: Turn, parent: str | None, settings: ChatSettings | None = None
    ) -> TurnRequest:
        """Ask `turn` after the turn `parent`, with `settings` or those of the conversation."""
        question = TurnRecord(new_id(), parent, turn, time.time())
        path = (*in_prompt(self._journal.view.tree.path(parent)), question)
        answer = self._empty_answer(question.id)
        return TurnRequest(path, replace(answer, settings=settings or answer.settings), question)

    def again(self, step_id: str | None) -> TurnRequest:
        """Ask the question of a turn once more. Raises UsageError when there is none."""
        view = self._journal.view
        path = view.path() if step_id is None else view.tree.path(self._journal.known(step_id).id)
        if path and path[-1].turn.role == "assistant":
            path = path[:-1]
        if not path:
            raise UsageError("There is no question to answer again. Ask one first.")
        question = path[-1]
        if question.left_out:
            return self.new(question.turn, question.parent)
        return TurnRequest(in_prompt(path), self._empty_answer(question.id))

    def edited(
        self, step_id: str, text: str, pictures: tuple[Attachment, ...]
    ) -> TurnRequest | None:
        """Ask an edited question beside the first one; an edited answer is only kept."""
        record = self._journal.known(step_id)
        if record.turn.role == "user":
            return self.new(Turn("user", text, pictures), record.parent)
        turn = Turn("assistant", text, finish="stop")
        self._journal.add(TurnRecord(new_id(), record.parent, turn, time.time(), note=EDITED))
        return None

    def continued(self) -> TurnRequest:
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
        return TurnRequest(prompt if begun else prompt[:-1], self._extended(answer))

    def _empty_answer(self, question: str) -> TurnRecord:
        return TurnRecord(
            id=new_id(),
            parent=question,
            turn=Turn("assistant", ""),
            created=time.time(),
            model=self._backend.model.name,
            tokenizer=self._backend.vocabulary,
            settings=self._journal.record.settings,
        )

    def _extended(self, answer: TurnRecord) -> TurnRecord:
        ours = ids_are_ours(answer, self._backend.vocabulary)
        return replace(
            answer,
            turn=answer.turn if ours else replace(answer.turn, token_ids=()),
            model=self._backend.model.name,
            tokenizer=self._backend.vocabulary if ours else "",
            settings=self._journal.record.settings,
            usage=None,
        )


def new_id() -> str:
    """A name that no other turn or conversation has."""
    return secrets.token_hex(8)
