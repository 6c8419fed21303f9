"""Settings of the conversation and the interface: checked as they are typed, saved on change."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Select, Static, TextArea

from q35chat.chat.conversation import Conversation
from q35chat.chat.values import ChatSettings
from q35chat.errors import Q35Error
from q35chat.tui.fields import LIMIT_FIELDS, SAMPLING_FIELDS, Field
from q35chat.tui.images.graphics import (
    GRAPHICS_PREFERENCES,
    GraphicsPreference,
    GraphicsProtocol,
    PictureDisplay,
)
from q35chat.tui.widgets.key_order import LineField, TextField
from q35chat.tui.widgets.messages import Messages

_PROTOCOL_WORDS: Final[dict[GraphicsProtocol, str]] = {
    "kitty": "drawn with Kitty's graphics protocol",
    "sixel": "drawn with Sixel",
    "blocks": "drawn with half blocks",
    "none": "not shown",
}
_CHAT: Final = "· THIS CHAT ONLY"
_PROGRAM: Final = "· ALL CHATS"
_FIELDS = {field.id: field for field in (*SAMPLING_FIELDS, *LIMIT_FIELDS)}


class Appearance(Protocol):
    """An application that can look another way."""

    picture_display: PictureDisplay

    def choose_theme(self, theme: str) -> None:
        """Use a theme from now on."""

    def choose_pictures(self, preference: GraphicsPreference) -> None:
        """Draw pictures another way from now on."""


class SettingsScreen(ModalScreen[str]):
    """Every valid change is applied at once; a wrong one says why and changes nothing. Gives what
    was typed and not taken, in words; empty if all was."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape,f2", "leave", "Close", show=False)
    ]

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self.messages = Messages()
        self._conversation = conversation
        self._wrong: dict[str, str] = {}

    @property
    def _app(self) -> Appearance:
        return cast("Appearance", self.app)

    def compose(self) -> ComposeResult:
        """Sampling, limits, system prompt, theme, pictures."""
        settings = self._conversation.settings()
        with Vertical(classes="dialog"):
            yield Static("Settings", classes="dialog-title")
            with VerticalScroll(can_focus=False):
                yield Static(f"SAMPLING {_CHAT}", classes="section")
                for field in SAMPLING_FIELDS:
                    yield from self._row(field)
                yield Static(f"LIMITS {_CHAT}", classes="section")
                for field in LIMIT_FIELDS:
                    yield from self._row(field)
                yield Static(f"SYSTEM PROMPT {_CHAT}", classes="section")
                yield TextField(settings.system_prompt, id="system_prompt", compact=True)
                yield Static(f"THEME {_PROGRAM}", classes="section")
                yield self._themes()
                yield Static(f"PICTURES {_PROGRAM}", classes="section")
                with Horizontal(id="pictures-row", classes="row"):
                    yield self._preferences()
                    yield Static(self._pictures_help(), id="pictures-help", classes="help")
            yield self.messages
            yield Static("Saved as you type · Tab goes on · Esc closes", classes="dialog-foot")

    def _row(self, field: Field) -> ComposeResult:
        with Horizontal(classes="row"):
            yield Label(field.label, markup=False)
            yield LineField(
                field.show(self._conversation.settings()), id=field.id, select_on_focus=True
            )
            yield Static(field.help, id=f"{field.id}-help", classes="help", markup=False)

    def _themes(self) -> Select[str]:
        names = sorted(self.app.available_themes, key=lambda name: (name[:4] != "q35-", name))
        return Select(
            [(name, name) for name in names],
            value=self.app.theme,
            allow_blank=False,
            compact=True,
            id="theme",
        )

    def _preferences(self) -> Select[str]:
        return Select(
            [(name, name) for name in GRAPHICS_PREFERENCES],
            value=self._app.picture_display.preference,
            allow_blank=False,
            compact=True,
            id="pictures",
        )

    def _pictures_help(self) -> Content:
        return Content(_PROTOCOL_WORDS[self._app.picture_display.protocol])

    def on_mount(self) -> None:
        """No blinking cursors."""
        for box in self.query(Input):
            box.cursor_blink = False
        self.query_one(TextArea).cursor_blink = False

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        field = _FIELDS[event.input.id or ""]
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

    @on(Select.Changed, "#theme")
    def _theme_chosen(self, event: Select.Changed) -> None:
        if isinstance(event.value, str) and event.value != self.app.theme:
            self._app.choose_theme(event.value)

    @on(Select.Changed, "#pictures")
    def _pictures_chosen(self, event: Select.Changed) -> None:
        preference = cast("GraphicsPreference", event.value)
        if preference != self._app.picture_display.preference:
            self._app.choose_pictures(preference)
            self.query_one("#pictures-help", Static).update(self._pictures_help())
