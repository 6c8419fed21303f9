"""The user's own keys: which command each is for, and what is wrong with the rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from textual.keys import Keys

from q35chat.tui.commands import BY_ID, BY_SLASH, PANEL_KEYS, Command, key_label

_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt", "meta", "super", "hyper"})
_NAMED: Final = frozenset(key.value for key in Keys if "+" not in key.value)
_TAKEN: Final = frozenset(
    {*PANEL_KEYS, "enter", "tab", "up", "down", "left", "right", "backspace", "delete", "ctrl+c",
     "ctrl+j", "shift+enter", "alt+enter"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Keymap:
    """`own` are the keys that replace defaults, by command id; `problems` are for the user."""

    own: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def keys(self, command: Command) -> str:
        """The keys of a command, separated by commas; empty when it has none."""
        if command.id in self.own:
            return self.own[command.id]
        taken = {key for keys in self.own.values() for key in keys.split(",")}
        return ",".join(key for key in command.keys.split(",") if key not in taken)

    def label(self, command_id: str) -> str:
        """The first key of a command, as it is written for people."""
        keys = self.keys(BY_ID[command_id])
        return key_label(keys) if keys else ""


class HasKeymap(Protocol):
    """An application with keys of the user's own."""

    keymap: Keymap


def key_of(application: object, command_id: str) -> str:
    """The key of a command in this application, as it is written for people; empty for none."""
    return cast("HasKeymap", application).keymap.label(command_id)


def read_keymap(written: Mapping[str, str]) -> Keymap:
    """The `[keys]` of the settings file: command names, with or without slash, and their keys."""
    own: dict[str, str] = {}
    owner: dict[str, str] = {}
    problems: list[str] = []
    for name, text in written.items():
        command = BY_ID.get(name) or BY_SLASH.get(name.removeprefix("/"))
        keys = [key.strip().lower() for key in text.split(",") if key.strip()]
        wrong = [_trouble(key, owner) for key in keys]
        if command is None:
            problems.append(f"keys: there is no command “{name}”; F1 lists them")
        elif not keys or any(wrong):
            trouble = next((words for words in wrong if words), "no key is given")
            problems.append(f"keys: {name} = “{text}” is not used, {trouble}")
        else:
            own[command.id] = ",".join(keys)
            owner |= dict.fromkeys(keys, name)
    return Keymap(own, tuple(problems))


def _trouble(key: str, owner: Mapping[str, str]) -> str:
    """Why a key cannot be given to a command; empty when it can."""
    *modifiers, last = key.split("+")
    if key in owner:
        return f"{key_label(key)} is for {owner[key]} already"
    if key in _TAKEN:
        return f"{key_label(key)} means something else while you write"
    if not _MODIFIERS.issuperset(modifiers) or not (len(last) == 1 or last in _NAMED):
        return f"“{key}” is no key; write it like ctrl+r or f9"
    if last == "space" or (len(last) == 1 and not {"ctrl", "alt"} & set(modifiers)):
        return f"“{key}” could not be typed any more"
    return ""
