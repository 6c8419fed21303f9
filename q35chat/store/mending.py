"""What stands in for damaged values of a chat: who said a turn, how it ended, what it follows.

Pure functions of what was read; nothing here writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, get_args

from q35chat.chat.events import FinishReason
from q35chat.chat.history.records import ConversationRecord, TurnRecord
from q35chat.chat.values import Role
from q35chat.store.damage import Damage

_ROLES: Final[dict[object, Role]] = {role: role for role in get_args(Role)}
_REASONS: Final[dict[object, FinishReason]] = {one: one for one in get_args(FinishReason)}
_HASH: Final = re.compile("[0-9a-f]{64}")


def is_hash(value: object) -> bool:
    """Whether this is the SHA-256 of a picture, and so the name of no other file."""
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def role_of(value: object, damage: Damage, *, answered: bool) -> Role:
    """Who said it; by what is `answered` with where that is damaged."""
    role = _ROLES.get(value)
    if role is None:
        damage.of("speakers")
        return "assistant" if answered else "user"
    return role


def finish_of(value: object, damage: Damage) -> FinishReason | None:
    """How an answer ended; by itself where that is damaged."""
    if value is None:
        return None
    reason = _REASONS.get(value)
    if reason is None:
        damage.of("endings")
        return "stop"
    return reason


def in_order(turns: Sequence[TurnRecord], damage: Damage) -> tuple[TurnRecord, ...]:
    """The turns, each with a parent that stands before it or with none.

    One that names another parent follows the last turn before it that somebody else said.
    """
    found: dict[str, TurnRecord] = {}
    last: dict[Role, str] = {}
    for turn in turns:
        if turn.parent is not None and turn.parent not in found:
            damage.of("order of turns")
            turn = replace(turn, parent=_followed(turn.turn.role, last))  # noqa: PLW2901
        found[turn.id] = turn
        last.pop(turn.turn.role, None)
        last[turn.turn.role] = turn.id
    return tuple(found.values())


def _followed(role: Role, last: dict[Role, str]) -> str | None:
    return next((ident for other, ident in reversed(last.items()) if other != role), None)


def with_head(
    record: ConversationRecord, turns: Sequence[TurnRecord], damage: Damage
) -> ConversationRecord:
    """The conversation; where the turn that it is read to is not there, to the one written last."""
    if record.head is None or any(turn.id == record.head for turn in turns):
        return record
    damage.of("order of turns")
    return replace(record, head=turns[-1].id if turns else None)
