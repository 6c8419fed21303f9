"""What screens and widgets ask of the application that they are part of. Knows none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from textual.message_pump import MessagePump
from textual.screen import Screen

from q35chat.settings import Settings
from q35chat.tui.commands import Keymap
from q35chat.tui.images.graphics import PictureDisplay
from q35chat.user_input import GraphicsPreference

if TYPE_CHECKING:
    from q35chat.tui.clipboard_reading import Held
    from q35chat.tui.exporting import Exporter
    from q35chat.tui.outside import Written

T = TypeVar("T")


class Application(Protocol):
    """An application with keys of the user's own and a way to draw pictures; without an
    `exporter` it exports no models."""

    keymap: Keymap
    picture_display: PictureDisplay
    exporter: Exporter | None
    settings: Settings

    def painted(self) -> None:
        """The first paint is on the terminal."""

    def push_screen(self, screen: Screen[T], callback: Callable[[T | None], None]) -> object:
        """Open a dialog; `callback` gets what it gives."""

    def action_command_palette(self) -> None:
        """Open the command palette."""

    def copy(self, text: str, what: str) -> None:
        """Copy a text, and say of `what` it was."""

    def name_window(self, text: str) -> None:
        """Show a text as the title of the terminal's window."""

    def tell(self, text: str) -> None:
        """Say that something is done, where the user looks elsewhere."""

    def read_clipboard(self, then: Callable[[Held | None], None]) -> None:
        """Give `then` what the clipboard holds, None where nobody can tell."""

    def edit_outside(self, text: str) -> Written:
        """Give the terminal to the user's editor until it has ended, with a text to change."""

    def choose_theme(self, theme: str) -> None:
        """Use a theme from now on."""

    def choose_pictures(self, preference: GraphicsPreference) -> None:
        """Draw pictures another way from now on."""

    def choose_details(self, details: bool) -> None:
        """Have the meters show what a step is made of, or no longer."""

    def exit(self) -> None:
        """End."""


def application(part: MessagePump) -> Application:
    """The application that a screen or a widget is part of."""
    return cast("Application", part.app)


def key_of(part: MessagePump, command_id: str) -> str:
    """The key of a command in this application, as it is written for people; empty for none."""
    return application(part).keymap.label(command_id)
