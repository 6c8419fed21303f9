"""All keys and commands, made from the command table."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from q35chat.settings import settings_path
from q35chat.settings.templates import Template, templates, templates_folder
from q35chat.tui.commands import (
    BY_ID,
    BY_SLASH,
    COMMANDS,
    COMPOSER_KEYS,
    CONVERSATION,
    PANEL_KEYS,
    READLINE_HAS,
    WRITING,
    Keymap,
    key_label,
)
from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.user_input import KeyStyle

_KEY_NOTES: Final[dict[KeyStyle, str]] = {
    "usual": "As in a shell: Ctrl+A, U, K, W and D edit a line, Ctrl+R searches, Ctrl+X Ctrl+E "
    f"opens an editor. Not as there: {', '.join(key_label(BY_ID[it].keys) for it in READLINE_HAS)}"
    ' and Ctrl+B, F, Y; keys = "readline" in the settings gives the message all of them, '
    'keys = "vi" those of vi.',
    "readline": "The message has readline's keys: Ctrl+A, E, B, F, P, N, D, H, K, U, W, Y, T, _, "
    "and Alt+B, F, D, Backspace. Commands that have them elsewhere have Alt: "
    f"{', '.join(map(key_label, READLINE_HAS.values()))}.",
    "vi": "The message has vi's keys: Esc, then h j k l w b e 0 ^ $ gg G, d c y with these or "
    "twice, x X D C s S r ~ J p P o O i a I A u, and counts before them. In an empty message Esc "
    "is as everywhere.",
}
_KEY, _SLASH = 11, 17
_LEAST_TEXT: Final = 20
_ROOMY: Final = 64


def help_content(keymap: Keymap, own: Sequence[Template], width: int) -> Content:
    """The whole page, `width` cells wide, with the keys as the user has them and the user's `own`
    commands."""
    lines: list[Content] = []
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines.append(Content.styled(group.upper(), f"{DIM} bold"))
        if group == WRITING:
            lines += [_row(key_label(key), "", words, width) for key, words in COMPOSER_KEYS]
        for command in (it for it in COMMANDS if it.group == group):
            slash = f"/{command.slash} {command.argument}".rstrip() if command.slash else ""
            lines.append(_row(keymap.label(command.id), slash, command.help, width))
        if group == CONVERSATION:
            panel = f"{key_label(PANEL_KEYS[0])}–{key_label(PANEL_KEYS[-1])}"
            lines.append(_row(panel, "", "Take a way on that a panel offers", width))
        lines.append(Content(""))
    if own:
        lines.append(Content.styled("YOUR OWN", f"{DIM} bold"))
        lines += [_row("", f"/{it.name} TEXT", it.head or "A template", width) for it in own]
        lines.append(Content(""))
    for note in _notes(keymap):
        lines += [Content.styled(line, DIM) for line in wrap(note, max(_LEAST_TEXT, width))]
    return Content("\n").join(lines)


def _notes(keymap: Keymap) -> tuple[str, ...]:
    return (
        _KEY_NOTES[keymap.style],
        "Ctrl+C copies what the mouse selected. With Shift (Option in iTerm) the terminal selects.",
        (
            f"Other keys are set under [shortcuts] in {settings_path()}, by the command's name "
            'behind the slash: regenerate = "f10"'
        ),
        (
            f"A file NAME.md in {templates_folder()} is a command /NAME, which asks what stands in "
            "it; $input in it is what you write behind the command"
        ),
    )


def _row(key: str, slash: str, words: str, width: int) -> Content:
    """Key, slash command and words; the words go below where there is no room beside."""
    head = Content.assemble((key.ljust(_KEY), "bold $primary"), (slash.ljust(_SLASH), "$accent"))
    indent = _KEY + _SLASH
    if width < _ROOMY:
        names = Content.assemble((key.ljust(_KEY), "bold $primary"), (slash, "$accent"))
        indent = _KEY
        head = Content.assemble(names, "\n", " " * indent) if slash else names
    first, *rest = wrap(words, max(_LEAST_TEXT, width - indent))
    return Content("\n").join([head + first, *(Content(" " * indent + line) for line in rest)])


class HelpScreen(Dialog[None]):
    """Scrolls with the arrow keys."""

    TITLE = "Keys and commands"
    FOOT = "↑ ↓ scroll · Esc closes"
    WIDEST = 92
    BINDINGS = [Binding("f1,q", "leave", "Close", show=False)]  # noqa: RUF012

    def __init__(self, keymap: Keymap) -> None:
        super().__init__()
        self._keymap = keymap
        self._own = [it for name, it in templates().items() if name not in BY_SLASH]

    def body(self) -> ComposeResult:
        """One scrolling page."""
        with VerticalScroll():
            yield Static(id="page")

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Wrap again."""
        page = help_content(self._keymap, self._own, self.inner_width)
        self.query_one("#page", Static).update(page)
