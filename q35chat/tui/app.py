"""The application: themes, preferences, copying, and the one chat screen.

`run` is how the command line starts it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import App

from q35chat.chat.service import Workspace
from q35chat.tui.clipboard import Copied, copy
from q35chat.tui.commands import BY_ID
from q35chat.tui.palette import CommandTable
from q35chat.tui.preferences import (
    Drafts,
    Preferences,
    load_preferences,
    preferences_path,
    save_preferences,
)
from q35chat.tui.screens.chat import ChatScreen, Opening
from q35chat.tui.terminal import apart, log_path
from q35chat.tui.themes import HOUSE_THEMES

_HERE = Path(__file__).parent


class ChatApp(App[None]):
    """Starts with a chat screen and stays there."""

    TITLE = "q35chat"
    CSS_PATH: ClassVar[list[str | Path]] = sorted(  # type: ignore[assignment]
        [*_HERE.glob("widgets/*.tcss"), *_HERE.glob("screens/*.tcss")]
    )
    COMMANDS = {CommandTable}  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self, workspace: Workspace, opening: Opening, preferences: Preferences, drafts: Drafts
    ) -> None:
        super().__init__()
        self.preferences = preferences
        self._chat = ChatScreen(workspace, opening, drafts)
        for theme in HOUSE_THEMES:
            self.register_theme(theme)

    def on_mount(self) -> None:
        """Apply preferences and show the chat."""
        known = {name: keys for name, keys in self.preferences.keys.items() if name in BY_ID}
        self.set_keymap(known)
        if self.preferences.theme in self.available_themes:
            self.theme = self.preferences.theme
        self.push_screen(self._chat)
        self._report(known)

    def _report(self, known: dict[str, str]) -> None:
        problems = [self.preferences.problem] if self.preferences.problem else []
        problems += [
            f"keys: there is no command “{name}”; F1 lists them"
            for name in self.preferences.keys
            if name not in known
        ]
        for problem in problems:
            self.notify(problem, severity="warning", markup=False)

    def choose_theme(self, theme: str) -> None:
        """Use a theme from now on."""
        self.theme = theme
        self.preferences = replace(self.preferences, theme=theme)
        try:
            save_preferences(preferences_path(), self.preferences)
        except OSError as error:
            self.notify(f"The theme could not be saved: {error}", severity="error", markup=False)

    def copy(self, text: str, what: str) -> None:
        """Copy a text by every way that fits, and say what came of it."""

        def work() -> None:
            copied = copy(text, what, os.environ)
            self.call_later(self._copied, copied)

        self.run_worker(work, thread=True, group="copy")

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a selection."""
        self._clipboard = text
        self.copy(text, "the selection")

    def _copied(self, copied: Copied) -> None:
        if copied.sequence and self._driver is not None:
            self._driver.write(copied.sequence)
        self.notify(
            copied.message,
            severity="information" if copied.certain else "warning",
            markup=False,
        )

    async def action_quit(self) -> None:
        """Leave the way the chat screen leaves."""
        await self._chat.run_command("quit")

    def action_help_quit(self) -> None:
        """Ctrl+C without a selection."""
        self.notify("Ctrl+Q quits, Esc stops an answer", markup=False)


def run(
    workspace: Workspace,
    *,
    session: str | None = None,
    images: Sequence[Path] = (),
    prompt: str = "",
    no_images: bool = False,
) -> int:
    """Run the application until it is left; the exit code of the program."""
    preferences = load_preferences(preferences_path())
    opening = Opening(session, tuple(images), prompt, preferences.pictures and not no_images)
    app = ChatApp(workspace, opening, preferences, Drafts.at_home())
    with apart(log_path()):
        app.run()
    return app.return_code or 0
