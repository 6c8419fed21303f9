"""Earlier questions of all chats: search as you type, take one into the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from q35chat.errors import Q35Error
from q35chat.text import folded
from q35chat.tui.screens.dialog import DIM, SearchDialog
from q35chat.tui.text import one_line

_MOST_LISTED = 200


class QuestionsScreen(SearchDialog[str | None, Sequence[str]]):
    """Gives the chosen question; `questions` reads all, the latest first, in a worker thread."""

    TITLE = "Earlier questions"
    FOOT = "Enter puts it into the message · Ctrl+R goes further back · Esc closes"
    PLACEHOLDER = "Search your questions"
    BINDINGS = [  # noqa: RUF012
        Binding("ctrl+r", "move('down')", "Further back", show=False),
        Binding("ctrl+s", "move('up')", "Back again", show=False),
    ]

    def __init__(self, questions: Callable[[], Sequence[str]], wanted: str = "") -> None:
        super().__init__()
        self._read = questions
        self._wanted = wanted
        self._all: Sequence[str] | None = None
        self._found: Sequence[str] = ()

    def on_mount(self) -> None:
        """Search for what is wanted already."""
        if self._wanted:
            self.fill(self._wanted)

    def find(self, text: str) -> Sequence[str] | None:
        """The questions that hold all words of a text."""
        if self._all is None:
            try:
                self._all = self._read()
            except Q35Error as error:
                self.call_later(self.notify, str(error), severity="error", markup=False)
                return None
        words = folded(text).split()
        found = (it for it in self._all if all(word in folded(it) for word in words))
        return [question for question, _ in zip(found, range(_MOST_LISTED), strict=False)]

    def rows(self, found: Sequence[str]) -> tuple[Sequence[Option], int]:
        """A line each, the latest chosen."""
        self._found = found
        nothing = Option(Content.styled("nothing found", DIM), disabled=True)
        return [self._row(question) for question in found] or [nothing], 0

    def _row(self, question: str) -> Option:
        return Option(Content(one_line(question, self.inner_width)))

    def on_resize(self) -> None:
        """The rows have another width."""
        for place, question in enumerate(self._found):
            self.options.replace_option_prompt_at_index(place, self._row(question).prompt)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.when_listed(lambda: self._take(self.options.highlighted))

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._take(event.option_index)

    def _take(self, place: int | None) -> None:
        if place is not None and place < len(self._found):
            self.dismiss(self._found[place])
