"""All keys and commands, made from the command table."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from q35chat.tui.commands import COMMANDS, COMPOSER_KEYS, Command, key_label

_DIM = "$foreground 60%"
_NOTES = (
    "Ctrl+C copies what the mouse selected. With Shift (Option in iTerm) the terminal selects.",
    "Keys can be changed in interface.toml in the configuration folder, by the names in brackets.",
)


def help_content(keys: Mapping[str, str]) -> Content:
    """The whole page; `keys` are the user's own keys by command id."""
    lines: list[Content] = []
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines.append(Content.styled(group.upper(), f"{_DIM} bold"))
        if group == "Writing":
            lines += [_row(key_label(key), words, "") for key, words in COMPOSER_KEYS]
        lines += [_command_row(command, keys) for command in COMMANDS if command.group == group]
        lines.append(Content(""))
    lines += [Content.styled(note, _DIM) for note in _NOTES]
    return Content("\n").join(lines)


def _command_row(command: Command, keys: Mapping[str, str]) -> Content:
    own = keys.get(command.id, command.keys)
    slash = f"/{command.slash} {command.argument}".rstrip() if command.slash else ""
    return _row(key_label(own) if own else "", f"{command.help} [{command.id}]", slash)


def _row(key: str, words: str, slash: str) -> Content:
    shown = Content.assemble((key.ljust(11), "bold $primary"), (slash.ljust(19), "$accent"))
    return Content.assemble(shown, words)


class HelpScreen(ModalScreen[None]):
    """Scrolls with the arrow keys."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape,f1,q", "dismiss", "Close", show=False)
    ]

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One scrolling page."""
        with Vertical(classes="dialog"):
            yield Static("Keys and commands", classes="dialog-title")
            with VerticalScroll():
                yield Static(help_content(self._keys))

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VerticalScroll).focus()
