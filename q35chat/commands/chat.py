"""`q35chat chat`: the screen where there is one, else a conversation line by line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from q35chat.commands.backend import load_model
from q35chat.commands.console import Console, StatusLine, is_terminal
from q35chat.commands.lines import LineChat
from q35chat.commands.model_choice import choose_model, demo_with_notes
from q35chat.commands.streaming import call_in_worker
from q35chat.errors import UsageError
from q35chat.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What the command was given; None means: not given."""

    model_dir: Path | None = None
    max_image_tokens: int | None = None
    threads: int | None = None
    plain: bool = False


def open_chat(options: ChatOptions, console: Console) -> int:
    """Chat until the user leaves; the exit code. Raises Q35Error."""
    if not options.plain and not _has_terminal(console):
        raise UsageError(
            'the chat needs a terminal; for one answer use q35chat ask "...", for a conversation '
            "line by line q35chat chat --plain"
        )
    settings = load_settings()
    return _line_by_line(options, settings, console)


def _line_by_line(options: ChatOptions, settings: Settings, console: Console) -> int:
    choice = choose_model(options.model_dir, settings, lambda: demo_with_notes(console))
    status = StatusLine(console)
    status.show("loading the model")
    try:
        model = call_in_worker(lambda: load_model(choice, options.threads))
    finally:
        status.clear()
    cap = options.max_image_tokens or settings.max_image_tokens
    return LineChat(model, console, cap, thinking=settings.thinking).loop(sys.stdin)


def _has_terminal(console: Console) -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and is_terminal(console.out)
