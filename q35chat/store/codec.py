"""Values to columns and back: settings and usage as JSON, ids and step times as packed numbers.

A field that a stored value lacks gets its default and one that is unknown is ignored, so that
rows written before a setting existed stay readable.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, fields, replace
from typing import Any

from q35chat.chat.events import Timings, Usage
from q35chat.chat.values import ChatSettings, SamplingSettings

_STEP_TIMES = ("predict_ms", "wall_ms")


def pack_ids(ids: tuple[int, ...]) -> bytes:
    """Token ids as little-endian uint32."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(data: bytes) -> tuple[int, ...]:
    """The ids that `pack_ids` packed."""
    return struct.unpack(f"<{len(data) // 4}I", data)


def settings_to_text(settings: ChatSettings | None) -> str | None:
    """Settings as JSON."""
    return None if settings is None else json.dumps(asdict(settings), ensure_ascii=False)


def settings_from_text(text: str | None) -> ChatSettings | None:
    """The settings that `settings_to_text` wrote."""
    if text is None:
        return None
    found = _known(ChatSettings, json.loads(text))
    if "sampling" in found:
        found["sampling"] = SamplingSettings(**_known(SamplingSettings, found["sampling"]))
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


def usage_from_columns(text: str | None, steps: bytes) -> Usage | None:
    """The usage that `usage_to_text` and `pack_steps` wrote."""
    if text is None:
        return None
    times = struct.unpack(f"<{len(steps) // 8}d", steps)
    half = len(times) // 2
    found = _known(Usage, json.loads(text))
    timings = Timings(**_known(Timings, found["timings"]))
    found["timings"] = replace(timings, predict_ms=times[:half], wall_ms=times[half:])
    return Usage(**found)


def _known(kind: type[Any], found: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
