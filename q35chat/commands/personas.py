"""How a new chat begins: the user's settings, and the persona that is asked for.

The one place where `--persona`, the file's tables and the values of a chat meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from q35chat.errors import UsageError
from q35chat.text import safe_line
from q35chat.user_input import SAMPLING_RANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from q35chat.chat.values import ChatSettings, Persona, SamplingSettings
    from q35chat.settings import Settings


_KEYS: Final = {
    "system": "system_prompt",
    "thinking": "thinking",
    "thinking_budget": "thinking_budget",
    "reasoning_effort": "reasoning_effort",
    "preserve_thinking": "preserve_thinking",
    "max_new_tokens": "max_new_tokens",
    "max_image_tokens": "max_image_tokens",
}
"""What the file calls the settings of a chat."""


def personas_of(settings: Settings) -> Sequence[Persona]:
    """The personas of the file, in its order."""
    from q35chat.chat.values import Persona

    return [
        Persona(name, entry.system, entry.thinking, entry.thinking_budget, entry.sampling)
        for name, entry in settings.persona.items()
    ]


def check_persona(name: str | None, settings: Settings) -> None:
    """Refuse a name that the file does not have. Raises UsageError."""
    if name is not None and name not in settings.persona:
        known = ", ".join(settings.persona) or "none"
        raise UsageError(
            f"--persona {safe_line(name)} is not in the settings, which have {safe_line(known)}; "
            "begin one with [persona.NAME]"
        )


def plain_settings(settings: Settings, sampling: SamplingSettings) -> ChatSettings:
    """How chats begin without a persona; `sampling` is the checkpoint's own."""
    from q35chat.chat.values import ChatSettings

    return ChatSettings(
        sampling=replace(sampling, **settings.sampling),  # type: ignore[arg-type]
        **{name: getattr(settings, key) for key, name in _KEYS.items()},
    )


def changes_for(chat: ChatSettings, sampling: SamplingSettings) -> dict[str, Any]:
    """What to change in the file so that new chats begin as `chat` is. What is a default, or the
    checkpoint's own `sampling`, is taken out of it."""
    from q35chat.settings import Settings

    plain = Settings()
    changes: dict[str, Any] = {}
    for key, name in _KEYS.items():
        value = getattr(chat, name)
        changes[key] = None if value == getattr(plain, key) else value
    chosen = {name: getattr(chat.sampling, name) for name in SAMPLING_RANGES}
    own = {name: getattr(sampling, name) for name in SAMPLING_RANGES}
    changes["sampling"] = {
        name: None if value == own[name] else value for name, value in chosen.items()
    }
    return changes


def new_chat(settings: Settings, sampling: SamplingSettings, name: str | None) -> ChatSettings:
    """How a new chat begins with the persona `name`, or with the file's own. Raises UsageError."""
    check_persona(name, settings)
    plain, wanted = plain_settings(settings, sampling), name or settings.default_persona
    return next((it.over(plain) for it in personas_of(settings) if it.name == wanted), plain)
