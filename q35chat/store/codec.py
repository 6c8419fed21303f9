"""Values to columns and back: settings and usage as JSON, ids and step times as packed numbers.

A field that a stored value lacks gets its default and one that is unknown is ignored, so that
rows written before a setting existed stay readable. What is damaged does the same and is told to a
`Damage`: nothing here raises, whatever stands in the file.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Any, Final

from q35chat.chat.events import Timings, Usage
from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.store.damage import Damage

_STEP_TIMES = ("predict_ms", "wall_ms")
LATEST_TIME = 253_402_300_799.0
"""The last second of the year 9999, since the epoch."""

Check = Callable[[Any], bool]


def pack_ids(ids: tuple[int, ...]) -> bytes:
    """Token ids as little-endian uint32."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(data: object, damage: Damage) -> tuple[int, ...]:
    """The ids that `pack_ids` packed; none where they are damaged: the text has them again."""
    if not isinstance(data, bytes) or len(data) % 4:
        damage.of("token ids")
        return ()
    return struct.unpack(f"<{len(data) // 4}I", data)


def settings_to_text(settings: ChatSettings | None) -> str | None:
    """Settings as JSON."""
    return None if settings is None else json.dumps(asdict(settings), ensure_ascii=False)


def settings_from_text(text: object, damage: Damage) -> ChatSettings | None:
    """The settings that `settings_to_text` wrote; a damaged one is the default."""
    if text is None:
        return None
    found = _sound(_object(text), _SETTINGS, damage, "settings")
    if "sampling" in found:
        sampling = _sound(found["sampling"], _SAMPLING, damage, "settings")
        found["sampling"] = SamplingSettings(**sampling)
    if "stop" in found:
        found["stop"] = tuple(found["stop"])
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


def usage_from_columns(text: object, steps: object, damage: Damage) -> Usage | None:
    """The usage that `usage_to_text` and `pack_steps` wrote; None where a count is damaged."""
    if text is None:
        return None
    found = _sound(_object(text), _USAGE, damage, "counts")
    if any(name not in found for name in _NEEDED):
        damage.of("counts")
        return None
    times = _steps(steps, damage)
    half = len(times) // 2
    timings = Timings(**_sound(found["timings"], _TIMINGS, damage, "times"))
    found["timings"] = replace(timings, predict_ms=times[:half], wall_ms=times[half:])
    return Usage(**found)


def text_of(value: object, damage: Damage, kind: str = "texts") -> str:
    """A column of text; what is no UTF-8 in it as replacement characters."""
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    text = raw.decode("utf-8", "replace")
    if text != value:
        damage.of(kind)
    return text


def time_of(value: object, damage: Damage) -> float:
    """A column of seconds since the epoch; 0 where it is none that a calendar has."""
    if isinstance(value, int | float) and 0 <= value <= LATEST_TIME:
        return float(value)
    damage.of("dates")
    return 0.0


def count_of(value: object, damage: Damage, kind: str) -> int:
    """A column of a whole number from 0 on; 0 where it is none."""
    if isinstance(value, int) and value >= 0:
        return value
    damage.of(kind)
    return 0


def _steps(data: object, damage: Damage) -> tuple[float, ...]:
    times: tuple[float, ...] = ()
    if isinstance(data, bytes) and len(data) % 16 == 0:
        times = struct.unpack(f"<{len(data) // 8}d", data)
        if all(0 <= time <= sys.float_info.max for time in times):
            return times
    damage.of("times")
    return ()


def _object(text: object) -> object:
    """What `text` says as JSON; None for anything that says nothing."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):  # also a number of too many digits
        return None


def _sound(found: object, checks: Mapping[str, Check], damage: Damage, kind: str) -> dict[str, Any]:
    """Those of the known fields that pass their check."""
    if not isinstance(found, dict):
        damage.of(kind)
        return {}
    known = {name: found[name] for name in checks if name in found}
    sound = {name: value for name, value in known.items() if checks[name](value)}
    if len(sound) < len(known):
        damage.of(kind)
    return sound


def _whole(least: int = 0, *, none: bool = False) -> Check:
    return lambda value: (
        (none and value is None)
        or (isinstance(value, int) and not isinstance(value, bool) and value >= least)
    )


def _real(least: float, most: float = sys.float_info.max) -> Check:
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_text(value: object) -> bool:
    """Not with half of a surrogate pair, which nothing can write."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_LEAST: Final = -sys.float_info.max
_SAMPLING: Final[Mapping[str, Check]] = {
    "temperature": _real(0),
    "top_k": _whole(),
    "top_p": _real(0, 1),
    "min_p": _real(0, 1),
    "presence_penalty": _real(_LEAST),
    "repetition_penalty": _real(sys.float_info.min),
    "seed": _whole(none=True),
}
_SETTINGS: Final[Mapping[str, Check]] = {
    "sampling": _is_object,
    "system_prompt": _is_text,
    "thinking": _is_bool,
    "thinking_budget": _whole(none=True),
    "max_new_tokens": _whole(none=True),
    "stop": _are_texts,
    "max_image_tokens": _whole(1),
    "loop_guard": _is_bool,
}
_TIMINGS: Final[Mapping[str, Check]] = {
    "vision_ms": _real(0),
    "prefill_ms": _real(0),
    "first_token_ms": _real(0),
    "route": _is_text,
}
_USAGE: Final[Mapping[str, Check]] = {
    **{field.name: _whole() for field in fields(Usage)},
    "timings": _is_object,
}
_NEEDED: Final = tuple(field.name for field in fields(Usage) if field.default is MISSING)
