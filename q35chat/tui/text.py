"""Text that is safe and short enough for a terminal.

Owns what may reach the screen from models and files, and how counts and times are written.
Knows no widget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from q35chat.chat.events import FinishReason, Timings, Usage
from q35chat.chat.service import ModelInfo
from q35chat.chat.text_files import TextFile
from q35chat.chat.values import Attachment
from q35chat.errors import Q35Error
from q35chat.text import pluralise, safe_text
from q35chat.tui.markdown.wrapping import fitting

MARKS: Final[dict[FinishReason, str]] = {
    "cancelled": "■ stopped",
    "capacity": "▲ capacity reached",
    "length": "▲ length limit reached",
    "loop": "▲ stopped: the model was repeating itself",
}
"""What stands under an answer that did not end by itself."""
LONGEST_NAME: Final = 24
"""How many cells of a file's name are shown."""


def clean(text: str) -> str:
    """The text without anything a terminal would obey; cleaned fragments join to the whole."""
    return safe_text(text.replace("\r", ""))


def through_tmux(sequence: str) -> str:
    """The sequence so that tmux hands it on to its terminal."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` cells, with an ellipsis where it was cut."""
    flat = " ".join(clean(text).split())
    if cell_len(flat) <= width:
        return flat
    return fitting(flat, width - 1).rstrip() + "…"


def cause(error: Exception) -> str:
    """What went wrong: an error's own words, or that nobody expected it."""
    if isinstance(error, Q35Error):
        return str(error)
    return f"Unexpected {type(error).__name__}: {error}"


def count(number: float) -> str:
    """A whole number with thousands separators."""
    return f"{round(number):,}"


def slots(number: float) -> str:
    """A number of KV slots: `1 slot`, `1,024 slots`."""
    return pluralise(number, "slot")


def millis(value: float) -> str:
    """Milliseconds with the digits that matter: `0.8 ms`, `54 ms`, `1.2 s`."""
    if value >= 1000:
        return seconds(value / 1000)
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def seconds(value: float) -> str:
    """A duration: `38 ms`, `0.4 s`, `12 s`, `3 min 05 s`."""
    if 0 < value < 0.1:
        return millis(value * 1000)
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def rate(tokens_per_s: float) -> str:
    """Tokens per second with one decimal below a hundred; a dash for none."""
    if not tokens_per_s:
        return "–"
    return f"{tokens_per_s:.1f} tok/s" if tokens_per_s < 100 else f"{count(tokens_per_s)} tok/s"


def picture_caption(attachment: Attachment, longest: int = LONGEST_NAME) -> str:
    """Name, of at most `longest` cells, size and cost of a picture."""
    size = f"{attachment.width}×{attachment.height}"
    return f"{one_line(attachment.name, longest)}  {size}  {slots(attachment.tokens)}"


def file_caption(file: TextFile, longest: int = LONGEST_NAME) -> str:
    """Name, of at most `longest` cells, length and cost of a file; a part of one says so."""
    size = file.part.removeprefix("the first ") or pluralise(file.lines, "line")
    cost = f"  {slots(file.slots)}" if file.slots else ""
    name = one_line(file.name, min(14, longest) if file.part else longest)
    return f"{name}  {one_line(size, 40)}{cost}"


def usage_items(usage: Usage) -> list[str]:
    """The numbers under an answer: what was read, reused, made, how fast, and by which graphs."""
    read = f"↑{count(usage.prompt_tokens - usage.reused_tokens)} new"
    if usage.reused_tokens:
        read += f" · {count(usage.reused_tokens)} reused"
    parts = [read, f"↓{count(usage.completion_tokens)}"]
    if step := usage.timings.step_ms:
        parts += [rate(1000 / step), f"{millis(step)}/step"]
    if usage.timings.first_token_ms:
        parts.append(f"first token {seconds(usage.timings.first_token_ms / 1000)}")
    if usage.timings.route:
        parts.append(f"read by {route_words(usage.timings)}")
    return parts


def route_words(timings: Timings) -> str:
    """Which graphs read the prompt, without the counts and times that stand elsewhere."""
    ways = timings.route.partition(": ")[2] or timings.route
    return ways.partition(", about ")[0]


def packed(items: Sequence[str], width: int, gap: str = "  ") -> list[str]:
    """The items in lines of at most `width` cells, broken only between them where they fit."""
    lines: list[str] = []
    for item in items:
        longer = f"{lines[-1]}{gap}{item}" if lines else item
        if lines and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(one_line(item, width))
    return lines


def model_facts(model: ModelInfo) -> list[str]:
    """Target, precision and what it keeps, and device, each said once; of a server where it is,
    what is only estimated of it, and how busy it is."""
    blind = "" if model.pictures else "sees no pictures"
    parts = [model.target, model.precision, model.kept, blind]
    if model.device.lower() != model.target.lower():
        parts.append(model.device)
    if model.remote:
        parts += ["slots estimated" if model.estimated else "", *model.load.split(" · ")]
    return [clean(part) for part in parts if part]
