"""How a new chat begins: the user's settings, and the persona that is asked for.

The one place where `--persona`, the file's tables and the values of a chat meet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from q35chat.errors import UsageError
from q35chat.text import safe_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from q35chat.chat.values import ChatSettings, Persona, SamplingSettings
    from q35chat.settings import Settings


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
        system_prompt=settings.system,
        thinking=settings.thinking,
        max_image_tokens=settings.max_image_tokens,
    )


def new_chat(settings: Settings, sampling: SamplingSettings, name: str | None) -> ChatSettings:
    """How a new chat begins with the persona `name`, or with the file's own. Raises UsageError."""
    check_persona(name, settings)
    plain, wanted = plain_settings(settings, sampling), name or settings.default_persona
    return next((it.over(plain) for it in personas_of(settings) if it.name == wanted), plain)
