"""Options that contradict each other, refused before anything is read or loaded.

Knows option names; imports nothing heavy.
"""

from __future__ import annotations

from q35chat.errors import UsageError


def check_thinking(thinking: bool | None, budget: int | None) -> None:
    """Refuse a budget for reasoning that is switched off. Raises UsageError."""
    if thinking is False and budget is not None:
        raise UsageError("--no-thinking leaves no reasoning to limit; drop it or --thinking-budget")


def check_session(session: str | None, *, latest: bool) -> None:
    """Refuse to open two chats at once. Raises UsageError."""
    if session is not None and latest:
        raise UsageError("--continue is the latest chat, --session another; give one")
