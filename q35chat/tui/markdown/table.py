"""A table whose cells wrap, in the width there is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from textual.content import Content

_BETWEEN: Final = " │ "
_LINE: Final = "$foreground 40%"
_NARROWEST: Final = 3

Wrap = Callable[[Content, int], list[Content]]


def column_widths(natural: list[int], width: int) -> list[int]:
    """The natural widths, the widest made narrower until all fit."""
    widths = [max(1, size) for size in natural]
    room = width - len(_BETWEEN) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widest = widths.index(max(widths))
        second = max((size for size in widths if size < widths[widest]), default=_NARROWEST)
        surplus = sum(widths) - room
        widths[widest] = max(_NARROWEST, second, widths[widest] - surplus)
        if widths[widest] == second and sum(widths) > room:
            widths[widest] -= 1
    return widths


def table_lines(rows: list[list[Content]], width: int, wrap: Wrap) -> list[Content]:
    """A head, a line under it, and the rows."""
    if not rows:
        return []
    columns = max(len(row) for row in rows)
    padded = [[*row, *[Content("")] * (columns - len(row))] for row in rows]
    natural = [max(row[index].cell_length for row in padded) for index in range(columns)]
    widths = column_widths(natural, width)
    head = [cell.stylize_before("bold") for cell in padded[0]]
    rule = "─┼─".join("─" * size for size in widths)
    lines = [*_row(head, widths, wrap), Content.styled(rule, _LINE)]
    for row in padded[1:]:
        lines += _row(row, widths, wrap)
    return lines


def _row(cells: list[Content], widths: list[int], wrap: Wrap) -> list[Content]:
    columns = [wrap(cell, size) for cell, size in zip(cells, widths, strict=True)]
    lines: list[Content] = []
    for index in range(max(len(column) for column in columns)):
        parts: list[Content | tuple[str, str]] = []
        for column, size in zip(columns, widths, strict=True):
            cell = column[index] if index < len(column) else Content("")
            if parts:
                parts.append((_BETWEEN, _LINE))
            parts.append(cell.pad_right(max(0, size - cell.cell_length)))
        lines.append(Content.assemble(*parts).rstrip())
    return lines
