"""A question with two answers; the careful one has the focus."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from q35chat.tui.screens.dialog import DIM, Dialog
from q35chat.tui.text import clean


class ConfirmScreen(Dialog[bool]):
    """True for yes; anything else is no."""

    BINDINGS = [  # noqa: RUF012
        Binding("n", "leave", "No", show=False),
        Binding("y", "dismiss(True)", "Yes", show=False),
    ]

    def __init__(self, question: str, detail: str, yes: str) -> None:
        super().__init__()
        self._question, self._detail, self._yes = question, detail, yes

    def compose(self) -> ComposeResult:
        """Question, detail, two buttons."""
        with Vertical(classes="dialog"):
            yield Static(self._bold(), id="question")
            yield Static(self._dim(), id="detail")
            with Horizontal(classes="buttons"):
                yield Button("Cancel (n)", id="no", compact=True)
                yield Button(f"{self._yes} (y)", id="yes", variant="error", compact=True)

    def _bold(self) -> Content:
        return Content.styled(clean(self._question), "bold")

    def _dim(self) -> Content:
        return Content.styled(clean(self._detail), DIM)

    def ask_instead(self, question: str, detail: str, yes: str) -> None:
        """What was asked has changed meanwhile; the keys and what they mean stay."""
        self._question, self._detail, self._yes = question, detail, yes
        if self.is_mounted:
            self.query_one("#question", Static).update(self._bold())
            self.query_one("#detail", Static).update(self._dim())
            self.query_one("#yes", Button).label = f"{yes} (y)"

    def on_mount(self) -> None:
        """Enter alone changes nothing."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A button answers."""
        self.dismiss(event.button.id == "yes")
