"""Lists of words and the wordings of facts to remember, read from `words.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

_DATA = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
THINGS: list[str] = _DATA["things"]
NAMES: list[str] = _DATA["names"]
SYSTEM_PROMPTS: list[str] = _DATA["system_prompts"]
FAVOURITES: dict[str, list[str]] = _DATA["favourites"]
TELL: dict[str, list[str]] = _DATA["tell"]
TELL_MORE: dict[str, list[str]] = _DATA["tell_more"]
AROUND: dict[str, list[str]] = _DATA["around"]
CHANGE: dict[str, list[str]] = _DATA["change"]
ASK: dict[str, list[str]] = _DATA["ask"]
ASK_MORE: dict[str, list[str]] = _DATA["ask_more"]
CHINESE: dict[str, list[str]] = _DATA["chinese"]
