"""What stands on an empty screen: which model this is, and how to begin."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from q35chat.chat.service import ModelInfo
from q35chat.tui.text import clean, count

_DIM = "$foreground 60%"
_EXPORT = "q35chat export Qwen/Qwen3.5-0.8B --out out/"
_TIPS = (
    ("Enter", "sends, Ctrl+J makes a new line"),
    ("@", "or a dropped file attaches a picture; Ctrl+O shows them first"),
    ("Esc", "stops an answer; what is written stays"),
    ("F1", "lists every key, Ctrl+P finds any command"),
)


class Welcome(Static):
    """A few quiet lines in the middle; a banner when only the demo model is there."""

    def show(self, model: ModelInfo | None) -> None:
        """Say what is known about the model."""
        self.update(Content("\n").join(_lines(model)))


def _lines(model: ModelInfo | None) -> list[Content]:
    lines = [Content.styled("q35chat", "$primary bold")]
    if model is None:
        lines.append(Content.styled("The model is loading. You can write already.", _DIM))
    else:
        where = f"{model.target} · {model.precision} · {model.device}"
        lines.append(Content.assemble((clean(model.name), "bold"), (f"  {clean(where)}", _DIM)))
        lines.append(
            Content.styled(
                f"Private and local. {count(model.capacity)} slots for each conversation.", _DIM
            )
        )
    if model is not None and model.is_demo:
        lines += [Content(""), *_demo_banner()]
    lines.append(Content(""))
    lines += [
        Content.assemble((key.rjust(6), "bold"), (f"  {words}", _DIM)) for key, words in _TIPS
    ]
    return lines


def _demo_banner() -> list[Content]:
    return [
        Content.styled("▲ This is the tiny demo model: it shows the program, it knows nothing.",
                       "$warning"),
        Content.assemble(("  A real one:  ", _DIM), (_EXPORT, "bold")),
        Content.assemble(("        then:  ", _DIM), ("q35chat --model-dir out/", "bold")),
    ]  # fmt: skip
