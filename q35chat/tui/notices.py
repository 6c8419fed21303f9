"""What the terminal's window is told: its title, and that something is done while nobody looks.

Makes the sequences; knows no screen.
"""

from __future__ import annotations

from collections.abc import Mapping

from q35chat.tui.text import one_line, through_tmux

LONG_S = 10.0
"""An answer that took so long is worth a notice."""
KEEP_TITLE, BRING_BACK_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""The terminal keeps the title that it had, and shows it again."""
_WIDEST = 80
_SAY_777 = ("foot", "rxvt")
_NAME_777 = ("VTE_VERSION", "KONSOLE_VERSION")


def title(text: str) -> str:
    """Names the window (OSC 2)."""
    return f"\x1b]2;{one_line(text, _WIDEST)}\x07"


def notice(text: str, environment: Mapping[str, str]) -> str:
    """A notification of the desktop, passed through tmux, and the bell, which is what terminals
    without notifications have. It is OSC 777 where the terminal is known for that, else OSC 9."""
    words = one_line(text, _WIDEST)
    known = environment.get("TERM", "").startswith(_SAY_777) or any(
        name in environment for name in _NAME_777
    )
    body = f"777;notify;q35chat;{words.replace(';', ',')}" if known else f"9;{words}"
    sequence = f"\x1b]{body}\x07"
    if "TMUX" in environment:
        sequence = through_tmux(sequence)
    return f"{sequence}\x07"
