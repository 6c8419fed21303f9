"""The sizes of a terminal that the stylesheets tell apart, as classes of a screen."""

from __future__ import annotations

from typing import Final

NARROW, WIDE = 60, 100
SHORT, TALL = 16, 30
WIDTHS: Final = [(0, "-slim"), (NARROW, "-narrow"), (WIDE, "-wide")]
"""From so many columns on."""
HEIGHTS: Final = [(0, "-tiny"), (SHORT, "-short"), (TALL, "-tall")]
"""From so many rows on."""
