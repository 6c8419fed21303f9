"""How long a test waits for what it wishes to see: seconds where nothing moves, whatever it waits
for, and some more while the screen still changes. Twice what the slowest waits took with three
workers on two busy cores."""

from __future__ import annotations

import time

STILL_S = 30.0
"""Without any sign of progress."""
IN_ALL_S = 90.0
"""With progress; less than a whole test may take."""


class Patience:
    """What is left of it for one wish."""

    def __init__(self) -> None:
        self._end = time.monotonic() + IN_ALL_S
        self.progress()

    def progress(self) -> None:
        """Something moved: wait on."""
        self._still = time.monotonic() + STILL_S

    @property
    def left_s(self) -> float:
        """Seconds until it ends, none or fewer once it has."""
        return min(self._still, self._end) - time.monotonic()
