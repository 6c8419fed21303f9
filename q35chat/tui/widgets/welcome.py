"""What stands on an empty screen: which model this is, and how to begin."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from q35chat.advice import EXPORT_COMMAND, OPEN_COMMAND
from q35chat.chat.service import ModelInfo
from q35chat.tui.text import clean, count, model_facts

_DIM = "$foreground 60%"
_TIPS = (
    ("Enter", "sends, Ctrl+J makes a new line"),
    ("@", "or a dropped file attaches a picture; Ctrl+O shows them first"),
    ("Esc", "stops an answer; what is written stays"),
    ("F1", "lists every key, Ctrl+P finds any command"),
)


class Welcome(Static):
    """A few quiet lines in the middle; a banner when only the demo model is there."""

    def show(self, model: ModelInfo | None, setup_key: str, *, failed: bool = False) -> None:
        """Say what is known about the model, and which key gets a real one."""
        self.update(Content("\n").join(_lines(model, setup_key, failed=failed)))


def _lines(model: ModelInfo | None, setup_key: str, *, failed: bool) -> list[Content]:
    lines = [Content.styled("q35chat", "$primary bold")]
    if model is None:
        words = "There is no model yet." if failed else "The model is loading."
        lines.append(Content.styled(f"{words} You can write already.", _DIM))
    else:
        where = " · ".join(model_facts(model))
        lines.append(Content.assemble((clean(model.name), "bold"), (f"  {where}", _DIM)))
        lines.append(
            Content.styled(f"Private and local. {count(model.capacity)} slots for each chat.", _DIM)
        )
    if model is not None and model.is_demo:
        lines += [Content(""), *_demo_banner(setup_key)]
    lines.append(Content(""))
    lines += [
        Content.assemble((key.rjust(6), "bold"), (f"  {words}", _DIM)) for key, words in _TIPS
    ]
    return lines


def _demo_banner(setup_key: str) -> list[Content]:
    return [
        Content.styled("▲ This is the tiny demo model: it shows the program, it knows nothing.",
                       "$warning"),
        Content.assemble(((setup_key or "/setup").rjust(6), "bold"),
                         ("  gets a real one here, or in a shell:", _DIM)),
        Content.assemble("        ", (EXPORT_COMMAND, "bold")),
        Content.assemble("        ", (OPEN_COMMAND, "bold")),
    ]  # fmt: skip
