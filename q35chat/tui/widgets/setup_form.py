"""The form of the setup screen: which model, how exact, how long, and where to.

Checks what can be checked without looking at a model; asks nobody itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from q35chat.processes import DEFAULT_OUT, REAL_MODEL
from q35chat.text import readable_size
from q35chat.tui.exporting import ROOM, BundleWish, Cost, Estimate, FoundBundle, Hub
from q35chat.tui.fields import whole
from q35chat.tui.text import clean, count
from q35chat.tui.widgets.key_order import LineField
from q35chat.user_input import MIN_CAPACITY, typed_path

_CHOSEN, _OTHER = "●", "○"
_MARK, _APART = 2, 3


class Choices(Widget, can_focus=True):
    """A few values by their labels, all on screen, one chosen: a line each, or `across` side by
    side where they fit, without details. Arrow keys and clicks choose; Enter is for the screen."""

    BINDINGS = [  # noqa: RUF012
        Binding("up,left", "move(-1)", "Previous", show=False),
        Binding("down,right,space", "move(1)", "Next", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """Another one is chosen."""

        choices: Choices

        @property
        def control(self) -> Choices:
            """For `on` with a selector."""
            return self.choices

    def __init__(
        self,
        options: Mapping[str, str],
        chosen: str,
        *,
        id: str,  # noqa: A002 - Textual's name
        across: bool = False,
    ) -> None:
        super().__init__(id=id)
        self._options = options
        self._details: Mapping[str, str] = {}
        self._across = across
        self.value = chosen

    def offer(self, options: Mapping[str, str]) -> None:
        """Offer other choices; the chosen one stays chosen where it is among them."""
        self._options = options
        if self.value not in options:
            self.value = next(iter(options))
        self.refresh(layout=True)

    def describe(self, details: Mapping[str, str]) -> None:
        """Put words behind the choices, by value."""
        self._details = details
        self.refresh()

    def _on_one_line(self, width: int) -> bool:
        labels = self._options.values()
        needed = sum(map(len, labels)) + (_MARK + _APART) * len(labels) - _APART
        return self._across and needed <= width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """A line each."""
        return 1 if self._on_one_line(width) else len(self._options)

    def render(self) -> Content:
        """Marks, labels, details."""
        if self._on_one_line(self.content_size.width):
            return Content(" " * _APART).join(map(self._choice, self._options))
        width = max(map(len, self._options.values()))
        details = (clean(self._details.get(value, "")) for value in self._options)
        return Content("\n").join(
            Content.assemble(self._choice(value, width), (f"  {detail}", "$foreground 60%"))
            for value, detail in zip(self._options, details, strict=True)
        )

    def _choice(self, value: str, width: int = 0) -> Content:
        chosen = value == self.value
        mark = (f"{_CHOSEN} ", "$primary bold") if chosen else (f"{_OTHER} ", "$foreground 60%")
        return Content.assemble(mark, (self._options[value].ljust(width), "bold" if chosen else ""))

    def action_move(self, by: int) -> None:
        """The one before or after, around the ends."""
        values = [*self._options]
        self._choose(values[(values.index(self.value) + by) % len(values)])

    def on_click(self, event: events.Click) -> None:
        """A click chooses."""
        edge, beside = self.gutter.left, self._on_one_line(self.content_size.width)
        for row, (value, label) in enumerate(self._options.items()):
            edge += len(label) + _MARK + _APART
            if event.x < edge if beside else event.y == row:
                self._choose(value)
                return

    def _choose(self, value: str) -> None:
        if value != self.value:
            self.value = value
            self.refresh()
            self.post_message(self.Chosen(self))


_HUBS: Final = {"huggingface": "Hugging Face", "modelscope": "ModelScope"}
_WORDS: Final = {"int4": "smallest", "int4-exact": "close", "int8": "closer", "fp32": "exact"}
_CAPACITY: Final = 2048
_MOST: Final = 1_048_576
_SLIM, _ROOMY = 44, 70


class SetupForm(Vertical):
    """Gives a `BundleWish`. An estimate is of one model on one hub, and goes when they change."""

    class Changed(Message):
        """Something was typed or chosen."""

    class FolderChanged(Message):
        """The folder is another one."""

    def __init__(self) -> None:
        super().__init__(id="form")
        self._estimate: Estimate | None = None
        self._room = 0
        self._standing: FoundBundle | None = None

    def compose(self) -> ComposeResult:
        """A row for each part of the wish."""
        with Horizontal(classes="row"):
            yield Label("Model")
            yield LineField(REAL_MODEL, id="model")
            yield Static("hub id or folder", id="model-help", classes="help")
        with Horizontal(classes="row"):
            yield Label("Hub")
            yield Choices(_HUBS, "huggingface", id="hub", across=True)
        with Horizontal(id="precision-row", classes="row"):
            yield Label("Precision")
            yield Choices({name: name for name in _WORDS}, "int4", id="precision")
        with Horizontal(classes="row"):
            yield Label("Capacity")
            yield LineField(str(_CAPACITY), id="capacity")
            yield Static("slots, answer included", id="capacity-help", classes="help")
        with Horizontal(classes="row"):
            yield Label("Folder")
            yield LineField(DEFAULT_OUT, id="folder")
            yield Static(id="folder-help", classes="help")

    def on_mount(self) -> None:
        """No blinking cursors, nothing known yet."""
        for box in self.query(Input):
            box.cursor_blink = False
        self._describe()

    def on_resize(self) -> None:
        """The details have another length."""
        self._describe()

    @property
    def estimate(self) -> Estimate | None:
        """What the model takes, when somebody looked."""
        return self._estimate

    @property
    def cost(self) -> Cost | None:
        """The cost of the chosen precision, when it is known."""
        return self._estimate.of(self._choices("precision").value) if self._estimate else None

    @property
    def folder(self) -> Path:
        """Where the bundle goes."""
        return typed_path(self._text("folder"))

    def wish(self) -> BundleWish:
        """What the form says. Raises ValueError with a line for people."""
        if not self._text("model"):
            raise ValueError(f"Model: give a hub id such as {REAL_MODEL}, or a folder")
        if not self._text("folder"):
            raise ValueError("Folder: say where the bundle goes")
        return BundleWish(
            self._text("model"),
            cast("Hub", self._choices("hub").value),
            self._choices("precision").value,
            self._capacity(),
            self.folder,
        )

    def refusal(self) -> str:
        """Why the wish cannot be had on this disk; empty when it can, or nobody knows."""
        needed = self.cost.disk * ROOM if self.cost else 0
        if self._room and needed > self._room:
            return (
                f"Folder: {readable_size(needed)} are needed, "
                f"{readable_size(self._room)} are free there; "
                f"free {readable_size(needed - self._room)} or choose another folder"
            )
        return ""

    def warning(self) -> str:
        """What may go wrong later; empty when nothing."""
        cost, known = self.cost, self._estimate
        try:
            memory = cost.memory_with(self._capacity()) if cost else 0
            unlike = self._standing.unlike(self.wish()) if self._standing else ""
        except ValueError:
            return ""
        if unlike:
            return f"{self.folder} {unlike}; it is replaced only when you say so"
        if known and memory > known.memory_free:
            free = readable_size(known.memory_free)
            return f"A chat takes about {readable_size(memory)} of memory, {free} are free now"
        return ""

    def know(self, estimate: Estimate) -> None:
        """Somebody looked at the model."""
        self._estimate = estimate
        self._choices("precision").offer({it.precision: it.precision for it in estimate.costs})
        self._describe()

    def know_place(self, room: int, standing: FoundBundle | None) -> None:
        """So many bytes are free where the folder is (0: nobody can tell), and what is in it."""
        self._room, self._standing = room, standing
        parts = [f"{readable_size(room)} free"] if room else []
        if standing and standing.kept:
            parts.append(f"{clean(standing.precision)} there {standing.kept}")
        self.query_one("#folder-help", Static).update(" · ".join(parts))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input.id == "model":
            self._estimate = None
        self._describe()
        self.post_message(self.FolderChanged() if event.input.id == "folder" else self.Changed())

    @on(Choices.Chosen)
    def _chosen(self, event: Choices.Chosen) -> None:
        event.stop()
        if event.choices.id == "hub":
            self._estimate = None
        self._describe()
        self.post_message(self.Changed())

    def _describe(self) -> None:
        details = dict(_WORDS)
        most = _MOST if self._estimate is None else self._estimate.longest
        hint = self.query_one("#capacity-help", Static)
        try:
            capacity = self._capacity()
        except ValueError:
            hint.update(Content.styled(f"from {MIN_CAPACITY} to {count(most)}", "$error"))
        else:
            hint.update("slots, answer included")
            for cost in self._estimate.costs if self._estimate else ():
                details[cost.precision] = self._details(cost, capacity)
        self._choices("precision").describe(details)

    def _details(self, cost: Cost, capacity: int) -> str:
        memory = readable_size(cost.memory_with(capacity))
        if self.size.width < _SLIM:
            return f"{memory:>10} RAM"
        if self.size.width < _ROOMY:
            return f"{readable_size(cost.disk):>10} · {memory:>10} RAM"
        word = {**_WORDS, "w8a8": "smaller"}.get(cost.precision, "")
        return f"{readable_size(cost.disk):>10} on disk {memory:>10} RAM  {word}"

    def _capacity(self) -> int:
        most = _MOST if self._estimate is None else self._estimate.longest
        try:
            return whole(self._text("capacity"), min(MIN_CAPACITY, most), most)
        except ValueError as problem:
            raise ValueError(f"Capacity {problem}") from None

    def _text(self, name: str) -> str:
        return clean(self.query_one(f"#{name}", Input).value).strip()

    def _choices(self, name: str) -> Choices:
        return self.query_one(f"#{name}", Choices)
