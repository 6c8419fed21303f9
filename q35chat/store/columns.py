"""Values to columns and back, and what stands in for a column that is damaged.

Settings and usage are JSON, ids and step times packed numbers. A field that a stored value lacks
gets its default and one that is unknown is ignored, so that rows written before a setting existed
stay readable. The tables keep wrong values out; what a damaged disk or another program has left is
read as well as it can be and told to a `Losses`: nothing here raises, whatever stands in the file.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from typing import Any, Final, TypeVar, get_args

from q35chat.chat.events import FinishReason, Timings, Usage
from q35chat.chat.values import ChatSettings, Role, SamplingSettings
from q35chat.errors import StoreError
from q35chat.json_reader import Fields, parse_json
from q35chat.text import LATEST_TIME

T = TypeVar("T")
_STEP_TIMES = ("predict_ms", "wall_ms")
_SHOWN_TITLE = 40
ROLES: Final[dict[object, Role]] = {role: role for role in get_args(Role)}
REASONS: Final[dict[object, FinishReason]] = {one: one for one in get_args(FinishReason)}
_HASH: Final = re.compile("[0-9a-f]{64}")


class Losses:
    """Collects what could not be read while a chat was. Nothing in the file is changed by it."""

    def __init__(self) -> None:
        self._kinds: dict[str, None] = {}

    def of(self, kind: str) -> None:
        """Something of this `kind`, a plural like `settings`, was not what was written."""
        self._kinds[kind] = None

    def line(self, title: str) -> str:
        """What the user should know, naming the chat; empty where all is whole."""
        if not self._kinds:
            return ""
        named = title if len(title) <= _SHOWN_TITLE else title[: _SHOWN_TITLE - 1] + "…"
        *before, last = self._kinds
        listed = f"{', '.join(before)} and {last}" if before else last
        return (
            f"The chat {named!r} is damaged in the data folder: its {listed}. "
            "What can be read is shown; look it over before you go on, or begin a new chat."
        )


def text_of(value: object, damage: Losses, kind: str = "texts") -> str:
    """A column of text; what is no UTF-8 in it as replacement characters."""
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    text = raw.decode("utf-8", "replace")
    if text != value:
        damage.of(kind)
    return text


def time_of(value: object, damage: Losses) -> float:
    """A column of seconds since the epoch; 0 where it is none that a calendar has."""
    if isinstance(value, int | float) and 0 <= value <= LATEST_TIME:
        return float(value)
    damage.of("dates")
    return 0.0


def count_of(value: object, damage: Losses, kind: str) -> int:
    """A column of a whole number from 0 on; 0 where it is none."""
    if isinstance(value, int) and value >= 0:
        return value
    damage.of(kind)
    return 0


def word_of(value: object, known: Mapping[object, T], damage: Losses, kind: str, else_: T) -> T:
    """A column of one of the `known` words; `else_` where it is none of them."""
    if value in known:
        return known[value]
    damage.of(kind)
    return else_


def is_hash(value: object) -> bool:
    """Whether this is the SHA-256 of a picture, and so the name of no other file."""
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def pack_ids(ids: tuple[int, ...]) -> bytes:
    """Token ids as little-endian uint32."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(data: object, damage: Losses) -> tuple[int, ...]:
    """The ids that `pack_ids` packed; none where they are damaged: the text has them again."""
    if not isinstance(data, bytes) or len(data) % 4:
        damage.of("token ids")
        return ()
    return struct.unpack(f"<{len(data) // 4}I", data)


def settings_to_text(settings: ChatSettings | None) -> str | None:
    """Settings as JSON."""
    return None if settings is None else json.dumps(asdict(settings), ensure_ascii=False)


def settings_from_text(text: object, damage: Losses) -> ChatSettings | None:
    """The settings that `settings_to_text` wrote; a damaged one is the default."""
    if text is None:
        return None
    found = _sound(_parsed(text), _SETTINGS, damage, "settings")
    if "sampling" in found:
        sampling = _sound(found["sampling"], _SAMPLING, damage, "settings")
        found["sampling"] = SamplingSettings(**sampling)
    return ChatSettings(**found)


def usage_to_text(usage: Usage | None) -> str | None:
    """Counts and whole-turn times as JSON; the times of single steps go to `pack_steps`."""
    if usage is None:
        return None
    found = asdict(usage)
    for name in _STEP_TIMES:
        del found["timings"][name]
    return json.dumps(found)


def pack_steps(usage: Usage | None) -> bytes:
    """Predict times and then wall times of every step, milliseconds, as little-endian doubles."""
    times = () if usage is None else usage.timings.predict_ms + usage.timings.wall_ms
    return struct.pack(f"<{len(times)}d", *times)


def pack_times(times: Sequence[object]) -> bytes:
    """The same of two lists that somebody else wrote; of nothing where they are not that."""
    flat = [one for each in times if isinstance(each, list) for one in each]
    halves = {len(each) if isinstance(each, list) else -1 for each in times}
    sound = all(isinstance(one, int | float) and not isinstance(one, bool) for one in flat)
    try:
        return struct.pack(f"<{len(flat)}d", *flat) if sound and len(halves) == 1 else b""
    except (OverflowError, struct.error):
        return b""


def usage_from_columns(text: object, steps: object, damage: Losses) -> Usage | None:
    """The usage that `usage_to_text` and `pack_steps` wrote; None where a count is damaged."""
    if text is None:
        return None
    found = _sound(_parsed(text), _USAGE, damage, "counts")
    if any(name not in found for name in _NEEDED):
        damage.of("counts")
        return None
    times = _unpack_steps(steps, damage)
    half = len(times) // 2
    timings = Timings(**_sound(found["timings"], _TIMINGS, damage, "times"))
    found["timings"] = replace(timings, predict_ms=times[:half], wall_ms=times[half:])
    return Usage(**found)


def slots_of(text: object) -> int:
    """The slots in use when the turn of a usage had ended; 0 where that is not known."""
    found = _sound(_parsed(text), {"capacity_used": Fields.whole}, Losses(), "counts")
    return int(found.get("capacity_used", 0))


def _unpack_steps(data: object, damage: Losses) -> tuple[float, ...]:
    if isinstance(data, bytes) and len(data) % 16 == 0:
        times: tuple[float, ...] = struct.unpack(f"<{len(data) // 8}d", data)
        if all(0 <= time <= sys.float_info.max for time in times):
            return times
    damage.of("times")
    return ()


def _parsed(text: object) -> object:
    """What `text` says as JSON; None for anything that says nothing."""
    try:
        return parse_json(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _text(stored: Fields, name: str) -> str:
    return _writable(stored, name, stored.text(name))


def _texts(stored: Fields, name: str) -> tuple[str, ...]:
    return tuple(_writable(stored, name, text) for text in stored.texts(name))


def _writable(stored: Fields, name: str, text: str) -> str:
    """`text`; no half of a surrogate pair, which nothing can write."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise stored.wrong(name, "a text", text)
    return text


_Read = Callable[[Fields, str], object]


def _sound(found: object, known: Mapping[str, _Read], damage: Losses, kind: str) -> dict[str, Any]:
    """Those of the `known` fields that can be read."""
    sound: dict[str, Any] = {}
    try:
        stored = Fields(found, kind, StoreError)
    except StoreError:
        damage.of(kind)
        return sound
    for name in known.keys() & stored.names():
        try:
            sound[name] = known[name](stored, name)
        except StoreError:
            damage.of(kind)
    return sound


def _limit(stored: Fields, name: str) -> int | None:
    return stored.whole(name) if stored.has(name) else None


_time: Final = partial(Fields.real, least=0)
_share: Final = partial(Fields.real, least=0, most=1)
_SAMPLING: Final[Mapping[str, _Read]] = {
    "temperature": _time,
    "top_k": Fields.whole,
    "top_p": _share,
    "min_p": _share,
    "presence_penalty": Fields.real,
    "repetition_penalty": partial(Fields.real, least=sys.float_info.min),
    "seed": _limit,
}
_SETTINGS: Final[Mapping[str, _Read]] = {
    "sampling": Fields.raw,
    "system_prompt": _text,
    "thinking": partial(Fields.flag, default=False),
    "thinking_budget": _limit,
    "max_new_tokens": _limit,
    "stop": _texts,
    "max_image_tokens": partial(Fields.whole, least=1),
    "loop_guard": partial(Fields.flag, default=True),
    "reasoning_effort": _text,
    "preserve_thinking": lambda stored, name: (
        stored.flag(name, default=False) if stored.has(name) else None
    ),
}
_TIMINGS: Final[Mapping[str, _Read]] = {
    "vision_ms": _time,
    "prefill_ms": _time,
    "first_token_ms": _time,
    "route": _text,
}
_USAGE: Final[Mapping[str, _Read]] = {
    **{field.name: Fields.whole for field in fields(Usage)},
    "timings": Fields.raw,
}
_NEEDED: Final = tuple(field.name for field in fields(Usage) if field.default is MISSING)
