"""The house themes can be read: between text and ground is a contrast of 4.5, as in WCAG 2.1."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import Theme

from q35chat.tui.themes import HOUSE_THEMES

LEAST = 4.5
GROUNDS = ("background", "surface", "panel")
COLOURS = ("primary", "secondary", "accent", "warning", "error", "success", "foreground")


def luminance(colour: Color) -> float:
    """Relative luminance, from 0 to 1."""
    parts = [it / 12.92 if it <= 0.03928 else ((it + 0.055) / 1.055) ** 2.4
             for it in colour.normalized]  # fmt: skip
    return sum(part * weight for part, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(text: Color, ground: Color) -> float:
    low, high = sorted(map(luminance, (text, ground)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("theme", HOUSE_THEMES, ids=lambda theme: theme.name)
def test_each_colour_and_dim_text_can_be_read(theme: Theme, ground: str) -> None:
    behind = Color.parse(getattr(theme, ground))
    found = {name: contrast(Color.parse(getattr(theme, name)), behind) for name in COLOURS}
    found["dim"] = contrast(behind.blend(Color.parse(theme.foreground or ""), 0.6), behind)
    assert {name: round(it, 2) for name, it in found.items() if it < LEAST} == {}
