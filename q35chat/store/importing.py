"""Chats from the files of exports: our own JSON, ChatGPT's `conversations.json`, LM Studio's
`*.conversation.json`.

What such a file says is data: no path in it is opened, no id in it names a turn that is there
already, and what is not understood of it is left out. ChatGPT's and LM Studio's formats are theirs
and not promised to anybody; what is read of them is what they hold at the time of writing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final

from q35chat.chat.events import Usage
from q35chat.chat.history.records import ConversationRecord, TurnRecord, new_id
from q35chat.chat.values import Attachment, ChatSettings, Role, Turn
from q35chat.errors import StoreError
from q35chat.json_reader import parse_json, read_bytes
from q35chat.store.columns import (
    REASONS,
    Losses,
    is_hash,
    pack_times,
    settings_from_text,
    usage_from_columns,
)
from q35chat.text import LATEST_TIME, now, safe_line

Chat = tuple[ConversationRecord, tuple[TurnRecord, ...]]
ReadPicture = Callable[[str], bytes | None]
"""The bytes of the picture with a hash, where the store has it."""

_MOST_BYTES: Final = 1 << 30
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")
_ROLES: Final[Mapping[str | None, Role]] = {"user": "user", "assistant": "assistant"}
_MOST_TITLE: Final = 200
_MOST_ID: Final = 2**32 - 1


def read_export(path: Path, picture: ReadPicture) -> list[Chat]:
    """The chats in a file, in its order. Raises StoreError for what is no export."""
    try:
        found = parse_json(read_bytes(path, most=_MOST_BYTES))
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{safe_line(str(path))} cannot be imported: it is no JSON") from error
    except ValueError as error:
        raise StoreError(f"{safe_line(str(path))} cannot be imported: {error}") from error
    chats = [chat for chat in _chats(found, picture) if chat[1]]
    if not chats:
        raise StoreError(
            f"{safe_line(str(path))} holds no chat: it is not what sessions export writes as JSON, "
            "nor ChatGPT's conversations.json, nor a conversation of LM Studio"
        )
    return chats


def _chats(found: object, picture: ReadPicture) -> Iterator[Chat]:
    values: list[Any] = found if isinstance(found, list) else [found]
    for value in values:
        if isinstance(_at(value, "mapping"), dict):
            yield _of_chatgpt(value)
        elif isinstance(_at(value, "messages"), list):
            yield _of_lm_studio(value)
        elif isinstance(_at(value, "turns"), list):
            yield _of_ours(value, picture)


# -- one chat of each kind


def _of_ours(value: Mapping[str, Any], picture: ReadPicture) -> Chat:
    chat = _Chat(value, _at(value, "id"), _at(value, "title"))
    for turn in _objects(value["turns"]):
        role = _ROLES.get(_word(turn, "role"))
        if role is not None:
            ids = _at(turn, "token_ids")
            whole = isinstance(ids, list) and all(
                type(one) is int and 0 <= one <= _MOST_ID for one in ids
            )
            said = Turn(
                role,
                _text(turn, "text"),
                tuple(_pictures(turn, picture)),
                _text(turn, "reasoning"),
                tuple(ids) if whole and isinstance(ids, list) else (),
                REASONS.get(_word(turn, "finish_reason") or ""),
            )
            chat.add(_word(turn, "id"), _word(turn, "parent"), said, turn)
    active = _at(value, "active")
    head = active[-1] if isinstance(active, list) and active else None
    settings = settings_from_text(json.dumps(_at(value, "settings")), Losses())
    return chat.ended(head, settings, _text(value, "summary"))


def _of_chatgpt(value: Mapping[str, Any]) -> Chat:
    """Its messages are a tree; what is no text, or hidden, is left out, and what the model said in
    several messages becomes one."""
    nodes: Mapping[str, Any] = value["mapping"]
    chat = _Chat(value, _at(value, "conversation_id") or _at(value, "id"), _at(value, "title"))
    waiting = [key for key, node in nodes.items() if _word(node, "parent") not in nodes]
    seen: set[str] = set()
    while waiting:
        key = waiting.pop()
        if key in seen or key not in nodes:
            continue
        seen.add(key)
        parent, message = _word(nodes[key], "parent"), _at(nodes[key], "message")
        children = _at(nodes[key], "children")
        listed = children if isinstance(children, list) else []
        waiting += [it for it in reversed(listed) if isinstance(it, str)]
        role = _ROLES.get(_word(message, "author", "role"))
        text = _joined(_at(message, "content", "parts"))
        hidden = _at(message, "metadata", "is_visually_hidden_from_conversation")
        if role is None or not text or hidden or _at(message, "recipient") not in (None, "all"):
            chat.pass_by(key, parent)
        else:
            model = _text(_at(message, "metadata"), "model_slug")
            facts = {"created": _at(message, "create_time"), "model": model}
            chat.add(key, parent, _said(role, text), facts, joins=True)
    return chat.ended(_at(value, "current_node"))


def _of_lm_studio(value: Mapping[str, Any]) -> Chat:
    """Each message has versions, of which one was chosen and went on."""
    created = _at(value, "createdAt")
    seconds = _time(created, 0.0, 1000.0) or None
    title = _text(value, "name")
    named = hashlib.sha256(f"{title} {created}".encode("utf-8", "replace")).hexdigest()[:16]
    chat = _Chat({"created": seconds, "updated": seconds}, named, title)
    parent = None
    for number, message in enumerate(_objects(value["messages"])):
        versions = _objects(_at(message, "versions"))
        chosen = _at(message, "currentlySelected")
        following = parent
        for place, version in enumerate(versions):
            role = _ROLES.get(_word(version, "role"))
            steps = [version, *_objects(_at(version, "steps"))]
            said = {
                thought: "\n\n".join(
                    text
                    for step in steps
                    if (_at(step, "style", "type") == "thinking") == thought
                    and (text := _joined(_at(step, "content")))
                )
                for thought in (False, True)
            }
            if role is not None and (said[False] or said[True]):
                key = f"{number}.{place}"
                model = _text(_at(version, "senderInfo"), "senderName")
                turn = replace(_said(role, said[False]), reasoning=said[True])
                chat.add(key, parent, turn, {"created": seconds, "model": model})
                following = key if following is parent or place == chosen else following
        parent = following
    settings = ChatSettings(system_prompt=_text(value, "systemPrompt"))
    return chat.ended(parent, settings)


def _said(role: Role, text: str) -> Turn:
    return Turn(role, text, finish="stop" if role == "assistant" else None)


@dataclass
class _Chat:
    """One chat while its turns are collected, parents first. `facts` tell its times, `ident` its
    name in the file."""

    facts: Mapping[str, Any]
    ident: object
    title: object
    _turns: dict[str, TurnRecord] = field(default_factory=dict)
    _named: dict[str | None, str | None] = field(default_factory=dict)

    def add(
        self,
        key: str | None,
        parent: str | None,
        turn: Turn,
        facts: Mapping[str, Any],
        *,
        joins: bool = False,
    ) -> None:
        """Put a turn under another one. Where it `joins`, it goes on with one of the same role."""
        above = self._named.get(parent)
        before = self._turns.get(above) if above is not None else None
        if joins and before is not None and before.turn.role == turn.role:
            turn = replace(turn, text=f"{before.turn.text}\n\n{turn.text}")
            if not any(one.parent == above for one in self._turns.values()):
                self._turns[before.id] = replace(before, turn=turn)
                self._named[key] = before.id
                return
            above = before.parent
        record = TurnRecord(
            new_id(),
            above,
            turn,
            _time(facts.get("created"), self._created),
            model=_text(facts, "model"),
            tokenizer=_text(facts, "tokenizer"),
            settings=_settings(facts),
            usage=_usage(facts),
            note=_text(facts, "note"),
            left_out=facts.get("left_out") is True,
        )
        self._turns[record.id], self._named[key] = record, record.id

    def pass_by(self, key: str, parent: str | None) -> None:
        """What stands under this, which is no turn, stands under what is above it."""
        self._named[key] = self._named.get(parent)

    def ended(self, head: object, settings: ChatSettings | None = None, summary: str = "") -> Chat:
        """The chat, read to `head`, or to its last turn where that is not there."""
        turns = tuple(self._turns.values())
        known = self._named.get(head) if isinstance(head, str) else None
        title = " ".join(_clean(self.title).split())[:_MOST_TITLE] or "imported"
        record = ConversationRecord(
            _name(self.ident),
            title,
            self._created,
            _time(self._first("updated", "update_time"), self._created),
            known or (turns[-1].id if turns else None),
            settings or ChatSettings(),
            summary=summary,
        )
        return record, turns

    @property
    def _created(self) -> float:
        return _time(self._first("created", "create_time"), now())

    def _first(self, *names: str) -> object:
        return next((self.facts[name] for name in names if name in self.facts), None)


# -- what a value is, where it is that


def _at(value: object, *names: str) -> Any:  # noqa: ANN401  (whatever stands there)
    """What stands below `value`; None where anything on the way is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _word(value: object, *names: str) -> str | None:
    """The text below `value`, None where there is none."""
    found = _at(value, *names)
    return found if isinstance(found, str) else None


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _clean(value: object) -> str:
    """A text without halves of surrogate pairs, which nothing can write; empty for what is none."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _text(value: object, name: str) -> str:
    return _clean(_at(value, name))


def _joined(parts: object) -> str:
    """The texts among the parts of a message."""
    found: Iterable[object] = parts if isinstance(parts, list) else ()
    texts = (_clean(part) or _text(part, "text") for part in found)
    return "\n".join(text for text in texts if text)


def _time(value: object, else_: float, per_second: float = 1.0) -> float:
    """A time in seconds, of which `value` counts so many a second; `else_` where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return else_
    return value / per_second if 0 <= value <= LATEST_TIME * per_second else else_


def _name(ident: object) -> str:
    """A name for the store: the file's own where it is one, else one that the same always gets."""
    if isinstance(ident, str) and _PLAIN.fullmatch(ident):
        return ident
    return hashlib.sha256(_clean(ident).encode()).hexdigest()[:16] if ident else new_id()


def _settings(facts: Mapping[str, Any]) -> ChatSettings | None:
    found = facts.get("settings")
    return settings_from_text(json.dumps(found), Losses()) if isinstance(found, dict) else None


def _usage(facts: Mapping[str, Any]) -> Usage | None:
    found = facts.get("usage")
    if not isinstance(found, dict):
        return None
    times = [_at(found, "timings", name) for name in ("predict_ms", "wall_ms")]
    return usage_from_columns(json.dumps(found), pack_times(times), Losses())


def _pictures(turn: Mapping[str, Any], picture: ReadPicture) -> Iterator[Attachment]:
    for one in _objects(_at(turn, "pictures")):
        sha256 = _at(one, "sha256")
        sizes = [_at(one, name) for name in ("width", "height", "tokens")]
        if is_hash(sha256) and all(type(size) is int and size >= 0 for size in sizes):
            data = picture(sha256) or b""
            yield Attachment(sha256, safe_line(_text(one, "name")), data, *sizes)
