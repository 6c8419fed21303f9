"""What the demo knows of q35chat and of itself, read from `knowledge.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Topic:
    """Questions with the same answer; `thought` is the reasoning written when thinking is on."""

    patterns: tuple[str, ...]
    answer: str
    thought: str


def _read() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("knowledge.toml").read_text(encoding="utf-8"))


def _topic(entry: dict[str, Any]) -> Topic:
    patterns = list(entry["patterns"])
    for name, choices in _DATA["lists"].items():
        patterns = [pattern.replace(f"<{name}>", choices) for pattern in patterns]
    return Topic(tuple(patterns), entry["answer"], entry["thought"])


_DATA = _read()
ENGLISH = tuple(_topic(entry) for entry in _DATA["english"])
CHINESE = tuple(_topic(entry) for entry in _DATA["chinese"])
UNKNOWN_CHINESE = _topic(_DATA["unknown_chinese"])
NO_PICTURE = _topic(_DATA["no_picture"])
UNKNOWN = _topic(_DATA["unknown"])
