"""Settings of the conversation and the interface: checked as they are typed, saved on change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast, get_args

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from q35chat.chat.conversation import Conversation
from q35chat.chat.values import ChatSettings
from q35chat.chat.workspace import Workspace
from q35chat.errors import Q35Error
from q35chat.tui.application import application
from q35chat.tui.fields import LIMIT_FIELDS, SAMPLING_FIELDS, Field, thinking_fields
from q35chat.tui.images.graphics import GraphicsProtocol
from q35chat.tui.screens.dialog import Dialog
from q35chat.tui.widgets.key_order import LineField, TextField
from q35chat.tui.widgets.messages import Messages
from q35chat.user_input import GraphicsPreference

_PROTOCOL_WORDS: Final[dict[GraphicsProtocol, str]] = {
    "kitty": "drawn with Kitty's graphics protocol",
    "sixel": "drawn with Sixel",
    "blocks": "drawn with half blocks",
    "none": "not shown",
}
_CHAT: Final = "· THIS CHAT ONLY"
_PROGRAM: Final = "· ALL CHATS"


class SettingsScreen(Dialog[str]):
    """Every valid change is applied at once; a wrong one says why and changes nothing. Gives what
    was typed and not taken, in words; empty if all was. `first` names the field to begin at."""

    TITLE = "Settings"
    FOOT = "Saved as you type · Ctrl+S keeps all for new chats · Esc closes"
    BINDINGS = [  # noqa: RUF012
        Binding("f2", "leave", "Close", show=False),
        Binding("ctrl+s", "keep", "Keep for all new chats", show=False),
    ]

    def __init__(self, workspace: Workspace, conversation: Conversation, first: str = "") -> None:
        super().__init__()
        self._first = first
        self.messages = Messages()
        self._workspace = workspace
        self._conversation = conversation
        self._wrong: dict[str, str] = {}
        self._limits = (*LIMIT_FIELDS, *thinking_fields(conversation.model.offers))
        self._fields = {field.id: field for field in (*SAMPLING_FIELDS, *self._limits)}

    def body(self) -> ComposeResult:
        """Sampling, limits, system prompt, theme, pictures."""
        settings = self._conversation.settings()
        with VerticalScroll(can_focus=False):
            yield Static(f"SAMPLING {_CHAT}", id="sampling", classes="section")
            for field in SAMPLING_FIELDS:
                yield from self._row(field)
            yield Static(f"LIMITS {_CHAT}", classes="section")
            for field in self._limits:
                yield from self._row(field)
            yield Static(f"SYSTEM PROMPT {_CHAT}", classes="section")
            yield TextField(settings.system_prompt, id="system_prompt", compact=True)
            with Horizontal(id="keep-row", classes="row"):
                yield Button("Keep for all new chats", id="keep", compact=True)
                yield Static("all settings above, and thinking on or off", classes="help")
            yield Static(f"THEME {_PROGRAM}", classes="section")
            themes = sorted(self.app.available_themes, key=lambda it: (it[:4] != "q35-", it))
            yield _choice(themes, self.app.theme, "theme")
            yield Static(f"PICTURES {_PROGRAM}", classes="section")
            with Horizontal(id="pictures-row", classes="row"):
                preference = application(self).picture_display.preference
                yield _choice(get_args(GraphicsPreference), preference, "pictures")
                yield Static(self._pictures_help(), id="pictures-help", classes="help")
        yield self.messages

    def _row(self, field: Field) -> ComposeResult:
        with Horizontal(classes="row"):
            yield Label(field.label, markup=False)
            yield LineField(
                field.show(self._conversation.settings()), id=field.id, select_on_focus=True
            )
            yield Static(field.help, id=f"{field.id}-help", classes="help", markup=False)

    def _pictures_help(self) -> Content:
        return Content(_PROTOCOL_WORDS[application(self).picture_display.protocol])

    def on_mount(self) -> None:
        """No blinking cursors."""
        for box in self.query(Input):
            box.cursor_blink = False
            if box.id == self._first:
                box.focus()
        self.query_one(TextArea).cursor_blink = False

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        field = self._fields[event.input.id or ""]
        hint = self.query_one(f"#{field.id}-help", Static)
        settings = self._conversation.settings()
        try:
            changed = field.apply(settings, event.value)
        except ValueError as problem:
            hint.update(f"not saved: {problem}")
            hint.add_class("-wrong")
            self._wrong[field.id] = f"{field.label} {problem}"
            return
        self._wrong.pop(field.id, None)
        hint.update(field.help)
        hint.remove_class("-wrong")
        if changed != settings:
            self._change(changed)

    def action_leave(self) -> None:
        """Close, and say what was not taken."""
        wrong = "; ".join(self._wrong.values())
        self.dismiss(f"Not saved, the former value stays: {wrong}" if wrong else "")

    @on(TextArea.Changed)
    def _prompt_typed(self, event: TextArea.Changed) -> None:
        settings = self._conversation.settings()
        prompt = event.text_area.text
        if prompt != settings.system_prompt:
            self._change(replace(settings, system_prompt=prompt))

    def _change(self, settings: ChatSettings) -> None:
        try:
            self._conversation.change_settings(settings)
        except Q35Error as error:
            self.notify(str(error), severity="error", markup=False)

    @on(Button.Pressed, "#keep")
    def action_keep(self) -> None:
        """Have all new chats begin as this one is set, where all that stands here is saved."""
        if self._wrong:
            wrong = "; ".join(self._wrong.values())
            self.notify(f"Nothing is kept for new chats: {wrong}", severity="error", markup=False)
            return
        try:
            so = self._workspace.begin_as(self._conversation.settings())
        except Q35Error as error:
            self.notify(str(error), severity="error", markup=False)
            return
        but = "" if so else ", but for what their persona (default_persona) says"
        self.notify(f"All new chats begin with these settings{but}", markup=False)

    @on(Select.Changed, "#theme")
    def _theme_chosen(self, event: Select.Changed) -> None:
        if isinstance(event.value, str) and event.value != self.app.theme:
            application(self).choose_theme(event.value)

    @on(Select.Changed, "#pictures")
    def _pictures_chosen(self, event: Select.Changed) -> None:
        preference = cast("GraphicsPreference", event.value)
        if preference != application(self).picture_display.preference:
            application(self).choose_pictures(preference)
            self.query_one("#pictures-help", Static).update(self._pictures_help())


def _choice(names: Sequence[str], value: str, ident: str) -> Select[str]:
    options = [(name, name) for name in names]
    return Select(options, value=value, allow_blank=False, compact=True, id=ident)
