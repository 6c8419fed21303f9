"""No long pauses for Python's garbage while the program starts or an answer is drawn.

A full collection walks every object there is: 0.1 s and more under a long history, again and
again while an answer grows. Until it has ended, what was there before, and what has survived one
such walk, is not walked again. As Python counts only what it has walked, it would not come back to
that by itself: everything is walked after some answers, and where a chat has left the screen. Knows
no widget.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Any, Final

_FULL: Final = 2
_ANSWERS: Final = 16
"""So many leave at most some megabytes."""
_ended = count(1)


def pause() -> None:
    """Nothing is walked while the program starts: what it makes then stays."""
    gc.disable()


def resume() -> None:
    """What is made from here on is walked in its time; what is there, not before `walk_all`."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def spare_old() -> None:
    """From here on only what is new is walked."""
    if _survived not in gc.callbacks:
        gc.callbacks.append(_survived)
    gc.freeze()


def walk_all() -> None:
    """Everything is walked again when its time comes, and now after every so many answers."""
    if _survived in gc.callbacks:
        gc.callbacks.remove(_survived)
    gc.unfreeze()
    if next(_ended) % _ANSWERS == 0:
        gc.collect()


def chat_left() -> None:
    """Free what a chat leaves that is not on screen any more, unless an answer is drawn."""
    if _survived not in gc.callbacks:
        gc.collect()


def _survived(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _FULL:
        gc.freeze()
