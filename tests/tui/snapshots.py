"""A screen as plain text, once with its words and once with its colours, for files people compare.

A file holds the rows, then every look with one column for each theme, then which look each row has
where: `a81 b c38` is 81 cells of `a`, one of `b`, 38 of `c`. Knows Textual's strips and no widget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual._context import visible_screen_stack
from textual.app import App
from textual.strip import Strip

_MOST_SHOWN: Final = 24
_SIDES: Final = " | "
_ATTRIBUTES: Final = ("bold", "dim", "italic", "underline", "strike", "reverse", "blink")
_RUN: Final = re.compile(r"([a-zA-Z]+)(\d*)")

Looks = tuple[str, ...]
"""How a cell looks, in words, one for each theme."""


@dataclass(frozen=True, slots=True)
class Shot:
    """What a screen shows: `rows` of text, and for each row the looks of its cells."""

    themes: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Looks, ...], ...]


def shoot(app: App[None], theme: str) -> Shot:
    """The screen on top as the terminal would get it, under the name of the theme."""
    visible_screen_stack.set(app._background_screens)
    strips = app.screen._compositor.render_strips()
    rows = tuple(strip.text.rstrip() for strip in strips)
    cells = tuple(tuple((look,) for look in _row_looks(strip)) for strip in strips)
    return Shot((theme,), rows, cells)


def side_by_side(shots: Sequence[Shot]) -> Shot:
    """One shot of the same text in several themes; a theme that changes the text fails."""
    first, *others = shots
    for other in others:
        assert other.rows == first.rows, difference(first, Shot(first.themes, other.rows, ()))
    rows = zip(*(shot.cells for shot in shots), strict=True)
    cells = tuple(
        tuple(sum(looks, ()) for looks in zip(*sides, strict=True)) for sides in rows
    )  # fmt: skip
    return Shot(sum((shot.themes for shot in shots), ()), first.rows, cells)


def written(shot: Shot) -> str:
    """The file of a shot."""
    names = dict(zip(_in_order(shot), _names(), strict=False))
    width = max(len(look) for looks in names for look in looks)
    palette = [
        f"{name:2} {_SIDES.join(look.ljust(width) for look in looks)}".rstrip()
        for looks, name in names.items()
    ]
    runs = [" ".join(_run(names[looks], len(list(same))) for looks, same in groupby(row))
            for row in shot.cells]  # fmt: skip
    rows = _numbered(runs)
    return "\n".join([*shot.rows, "", f"looks: {_SIDES.join(shot.themes)}", *palette, "", "rows:",
                      *rows, ""])  # fmt: skip


def read(text: str) -> Shot:
    """The shot in a file that `written` made."""
    shown, _, rest = text.rpartition("\n\nlooks: ")
    head, _, rows = rest.partition("\n\nrows:\n")
    themes, *palette = head.split("\n")
    named = (line.split(maxsplit=1) for line in palette)
    looks = {name: _parts(words) for name, words in named}
    cells: list[tuple[Looks, ...]] = []
    for line in rows.splitlines():
        numbers, runs = line.split(maxsplit=1)
        first, _, last = numbers.partition("-")
        row = tuple(
            look for name, length in _RUN.findall(runs) for look in [looks[name]] * int(length or 1)
        )
        cells += [row] * (int(last or first) - int(first) + 1)
    return Shot(_parts(themes), tuple(shown.split("\n")), tuple(cells))


def difference(old: Shot, new: Shot) -> str:
    """What is not the same, a line each, for people; empty when nothing is."""
    lines: list[str] = []
    if len(old.rows) != len(new.rows) or old.themes != new.themes:
        lines.append(
            f"{len(old.rows)} rows in {', '.join(old.themes)} became "
            f"{len(new.rows)} in {', '.join(new.themes)}"
        )
    for number, (before, after) in enumerate(zip(old.rows, new.rows, strict=False), start=1):
        if before != after:
            lines += [f"row {number:2} - {before}", f"       + {after}"]
    for number, (was, now) in enumerate(zip(old.cells, new.cells, strict=False), start=1):
        lines += _looks_changed(number, was, now, new)
    more = len(lines) - _MOST_SHOWN
    return "\n".join([*lines[:_MOST_SHOWN], *([f"… {more} more lines"] if more > 0 else [])])


def _looks_changed(
    number: int, before: Sequence[Looks], after: Sequence[Looks], new: Shot
) -> Iterator[str]:
    at = 0
    changes = groupby(zip(before, after, strict=False))
    for (old, now), same in changes:
        length = len(list(same))
        if old != now:
            words = _cut(new.rows[number - 1], at, at + length).strip()
            for theme, was, became in zip(new.themes, old, now, strict=False):
                if was != became:
                    yield f"row {number:2} “{words}” in {theme}: {was} became {became}"
        at += length


def _row_looks(strip: Strip) -> Iterator[str]:
    """A look a cell. A space goes on with the look before it where nobody could tell."""
    before: tuple[str, str] | None = None
    for text, style, _ in strip:
        blank, full = _words(style or Style(), blank=True), _words(style or Style())
        for character in text:
            if character != " ":
                before = (blank, full)
            elif before is None or before[0] != blank:
                before = (blank, blank)
            yield from [before[1]] * cell_len(character)


def _words(style: Style, *, blank: bool = False) -> str:
    """A style in words; of a `blank` cell only what is seen without a letter in it."""
    seen = ("underline", "strike", "reverse") if blank else _ATTRIBUTES
    attributes = [name for name in seen if getattr(style, name)]
    ink = "" if blank and not attributes else _colour(style.color)
    paper = f"on {_colour(style.bgcolor)}"
    return " ".join(part for part in (ink, paper, *attributes) if part)


def _colour(colour: Color | None) -> str:
    if colour is None or colour.is_default:
        return "default"
    if colour.triplet is not None:
        return colour.triplet.hex
    return colour.name


def _in_order(shot: Shot) -> list[Looks]:
    return list(dict.fromkeys(looks for row in shot.cells for looks in row))


def _names() -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    yield from letters
    for first in letters:
        yield from (first + second for second in letters)


def _run(name: str, length: int) -> str:
    return name if length == 1 else f"{name}{length}"


def _numbered(runs: Iterable[str]) -> Iterator[str]:
    number = 1
    for run, same in groupby(runs):
        last = number + len(list(same)) - 1
        yield f"{number if last == number else f'{number}-{last}'} {run}"
        number = last + 1


def _parts(line: str) -> Looks:
    return tuple(part.strip() for part in line.split(_SIDES))


def _cut(row: str, start: int, end: int) -> str:
    """The part of a row between two cells."""
    at, found = 0, ""
    for character in row:
        if start <= at < end:
            found += character
        at += cell_len(character)
    return found
