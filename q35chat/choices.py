"""What a user chooses among, where the engine, the settings and the command line all know it.

A leaf that imports nothing: the command line and the first paint wait for it.
"""

from __future__ import annotations

from typing import Literal

Speculate = Literal["off", "lookup", "mtp", "auto"]
"""Where guesses of the next tokens come from."""

LEAST_CAPACITY = 17
"""KV slots of a bundle: a question of one word takes up to 16, most for the template's tokens."""
