"""No long pauses for Python's garbage while the program starts or an answer is drawn.

A full collection walks every object there is: 0.1 s and more under a long history, again and
again while an answer grows. While calm, what was there before, and what has survived one such
walk, is not walked again; all of it is when the answer has ended. Knows no widget.
"""

from __future__ import annotations

import gc
from typing import Any, Final

_FULL: Final = 2


def starting() -> None:
    """Nothing is walked while the program starts: what it makes then stays."""
    gc.disable()


def started() -> None:
    """What is made from here on is walked in its time; what is there, not before `end`."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def begin() -> None:
    """From here on only what is new is walked."""
    if _survived not in gc.callbacks:
        gc.callbacks.append(_survived)
    gc.freeze()


def end() -> None:
    """Everything is walked again when its time comes."""
    if _survived in gc.callbacks:
        gc.callbacks.remove(_survived)
    gc.unfreeze()


def _survived(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _FULL:
        gc.freeze()
