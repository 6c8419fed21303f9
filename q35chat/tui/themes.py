"""The two house themes. Everything else draws with their variables, so any theme fits."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

DARK: Final = Theme(
    name="q35-dark",
    primary="#5fb3b3",
    secondary="#8fa7d6",
    accent="#e0a458",
    warning="#e6b450",
    error="#e5786d",
    success="#8fc07c",
    foreground="#d5d9e0",
    background="#12151b",
    surface="#181c24",
    panel="#202631",
    dark=True,
    variables={
        "border": "#5fb3b3",
        "border-blurred": "#2c3442",
        "scrollbar": "#2c3442",
        "scrollbar-background": "#181c24",
    },
)

LIGHT: Final = Theme(
    name="q35-light",
    primary="#176a6a",
    secondary="#445aa0",
    accent="#914f12",
    warning="#7d5600",
    error="#a8332a",
    success="#346a25",
    foreground="#101318",
    background="#fbfaf7",
    surface="#f2f0ea",
    panel="#e8e5dc",
    dark=False,
    variables={
        "border": "#176a6a",
        "border-blurred": "#d3cec1",
        "scrollbar": "#cfc9ba",
        "scrollbar-background": "#f2f0ea",
    },
)

HOUSE_THEMES: Final = (DARK, LIGHT)
