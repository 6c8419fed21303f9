"""All keys and commands, made from the command table."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from q35chat.tui.commands import COMMANDS, COMPOSER_KEYS, WRITING, Command, key_label

_DIM = "$foreground 60%"
_INDENT = 28
_NOTES = (
    "Ctrl+C copies what the mouse selected. With Shift (Option in iTerm) the terminal selects.",
    "Keys can be changed in interface.toml in the configuration folder, by the names in brackets.",
)


def help_content(keys: Mapping[str, str], width: int) -> Content:
    """The whole page, `width` cells wide; `keys` are the user's own keys by command id."""
    lines: list[Content] = []
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines.append(Content.styled(group.upper(), f"{_DIM} bold"))
        if group == WRITING:
            lines += [_row(key_label(key), "", words, width) for key, words in COMPOSER_KEYS]
        lines += [_command(command, keys, width) for command in COMMANDS if command.group == group]
        lines.append(Content(""))
    for note in _NOTES:
        lines += [Content.styled(line, _DIM) for line in wrap(note, width)]
    return Content("\n").join(lines)


def _command(command: Command, keys: Mapping[str, str], width: int) -> Content:
    own = keys.get(command.id, command.keys)
    slash = f"/{command.slash} {command.argument}".rstrip() if command.slash else ""
    words = f"{command.help} [{command.id}]"
    return _row(key_label(own) if own else "", slash, words, width)


def _row(key: str, slash: str, words: str, width: int) -> Content:
    first, *rest = wrap(words, max(20, width - _INDENT))
    head = Content.assemble((key.ljust(11), "bold $primary"), (slash.ljust(17), "$accent"), first)
    return Content("\n").join([head, *(Content(" " * _INDENT + line) for line in rest)])


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
                yield Static(id="page")

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Wrap again."""
        width = min(84, self.size.width * 95 // 100 - 8)
        self.query_one("#page", Static).update(help_content(self._keys, width))
