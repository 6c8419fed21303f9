"""The branch being read, as the prompt and the screen see it: pure functions of turn records.

A question that is left out takes its answer with it, whichever branch of it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from q35chat.chat.history.records import TurnRecord
from q35chat.chat.service import Step
from q35chat.chat.values import Turn
from q35chat.counting import counted
from q35chat.errors import StoreError, UsageError

INTERRUPTED = "interrupted"


def in_prompt(path: Sequence[TurnRecord]) -> tuple[TurnRecord, ...]:
    """The turns that are not left out."""
    return tuple(record for record, out in _left_out(path) if not out)


def steps_of(path: Sequence[TurnRecord]) -> tuple[Step, ...]:
    """The turns, without the number of the branch."""
    return tuple(_step(record, out) for record, out in _left_out(path))


def oldest(path: Sequence[TurnRecord], pairs: int) -> tuple[TurnRecord, ...]:
    """The first `pairs` questions with their answers. Raises UsageError: not so many."""
    starts = [place for place, record in enumerate(path) if record.turn.role == "user"]
    if not 0 < pairs <= len(starts):
        raise UsageError(
            f"{counted(pairs, 'question')} cannot be left out: the prompt has {len(starts)}."
        )
    return tuple(path[: (*starts, len(path))[pairs]])


def prompt_turns(path: Sequence[TurnRecord], vocabulary: str) -> tuple[Turn, ...]:
    """The turns for the model, without token ids of another vocabulary.

    Raises StoreError when the file of a picture is gone.
    """
    return tuple(_prompt_turn(record, vocabulary) for record in path)


def ids_are_ours(record: TurnRecord, vocabulary: str) -> bool:
    """Whether the token ids of a turn, perhaps none, are all of its text in this vocabulary."""
    turn = record.turn
    if turn.token_ids:
        return record.tokenizer == vocabulary
    return not (turn.text or turn.reasoning)


def _left_out(path: Sequence[TurnRecord]) -> Iterator[tuple[TurnRecord, bool]]:
    out = False
    for record in path:
        out = record.left_out if record.turn.role == "user" else out
        yield record, out


def _step(record: TurnRecord, out: bool) -> Step:
    ended = record.turn.role != "assistant" or record.turn.finish is not None
    return Step(
        id=record.id,
        turn=record.turn,
        note=record.note or ("" if ended else INTERRUPTED),
        usage=record.usage,
        left_out=out,
        model=record.model,
    )


def _prompt_turn(record: TurnRecord, vocabulary: str) -> Turn:
    turn = record.turn
    for picture in turn.attachments:
        if not picture.data:
            raise StoreError(
                f"The picture {picture.name!r} of this chat is missing or damaged in the "
                "data folder. Edit that question and attach it again."
            )
    return turn if record.tokenizer == vocabulary else replace(turn, token_ids=())
