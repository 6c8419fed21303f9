"""What stands on an empty screen: which model this is, and how to begin."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from q35chat.chat.service import ModelInfo
from q35chat.processes import export_command, program
from q35chat.tui.chat.session import Session
from q35chat.tui.sizes import SHORT
from q35chat.tui.text import clean, count, model_facts

_DIM = "$foreground 60%"
_LOCAL = "Private and local."
_TIPS = (
    ("Enter", "sends, Ctrl+J makes a new line"),
    ("@", "or Ctrl+O attaches a picture or a file"),
    ("Esc", "stops an answer; what is written stays"),
    ("F1", "lists every key, Ctrl+P finds any command"),
)


class Welcome(Static):
    """A few quiet lines in the middle; a banner when only the demo model is there."""

    def show(self, session: Session, setup_key: str, chats_key: str) -> None:
        """Say what is known about the model, which key gets a real one, and which one lists the
        earlier chats."""
        model, earlier = session.model, session.earlier
        blind = model is not None and not model.pictures
        tips = [tip for tip in _TIPS if not (blind and tip[0] == "@")]
        coming = "The server is asked." if session.asking else "The model is loading."
        absent = "There is no model yet." if session.state == "failed" else coming
        lines = [*_lines(model, setup_key, absent), *map(_tip, tips)]
        if self.app.size.height < SHORT:  # the title says who answers
            lines = [line for line in lines[1 if model is None else 2 :] if line.plain]
        if earlier:
            chats = "your earlier chat" if earlier == 1 else f"your {count(earlier)} earlier chats"
            lines.append(_tip((chats_key or "/sessions", f"lists {chats}")))
        self.update(Content("\n").join(lines))


def _tip(tip: tuple[str, str]) -> Content:
    key, words = tip
    return Content.assemble((key.rjust(6), "bold"), (f"  {words}", _DIM))


def _lines(model: ModelInfo | None, setup_key: str, absent: str) -> list[Content]:
    lines = [Content.styled("q35chat", "$primary bold")]
    if model is None:
        lines.append(Content.styled(f"{absent} You can write already.", _DIM))
    else:
        where = " · ".join(model_facts(model))
        lines.append(Content.assemble((clean(model.name), "bold"), (f"  {where}", _DIM)))
        about = "About " if model.estimated else ""
        room = f"{about}{count(model.capacity)} slots for each chat."
        place = f"What you write goes to {clean(model.remote)}." if model.remote else _LOCAL
        lines.append(Content.styled(f"{place} {room}", _DIM))
    if model is not None and model.is_demo:
        lines += [Content(""), *_demo_banner(setup_key)]
    return [*lines, Content("")]


def _demo_banner(setup_key: str) -> list[Content]:
    return [
        Content.styled("▲ This is the tiny demo model: it shows the program and knows little.",
                       "$warning"),
        Content.assemble(((setup_key or "/setup").rjust(6), "bold"),
                         ("  gets a real one here, or in a shell:", _DIM)),
        Content.assemble("  ", (export_command(), "bold")),
        Content.assemble("  ", (program(), "bold")),
    ]  # fmt: skip
