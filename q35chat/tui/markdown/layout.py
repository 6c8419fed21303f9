"""Markdown as lines of styled text at a given width: one widget can show any piece of it.

A widget for each block makes every layout as dear as the whole conversation is long; lines do
not. A link shows where it leads; nothing is hidden. Knows no widget; colours are theme variables,
resolved when drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Final, Literal, get_args

from markdown_it.tree import SyntaxTreeNode
from rich.cells import cell_len
from textual.content import Content, Span
from textual.highlight import highlight
from textual.style import Style

from q35chat.tui.markdown.formula_rules import as_written
from q35chat.tui.markdown.formulas import readable
from q35chat.tui.markdown.source import parser
from q35chat.tui.markdown.wrapping import breaks, fitting, folds

Lines = list[Content]
Alignment = Literal["left", "center", "right"]
_SIDES: Final[tuple[Alignment, ...]] = get_args(Alignment)

_BULLETS: Final = "•◦▪"
_TASKS: Final[dict[bool | None, str]] = {False: "☐", True: "☑"}
_COPY: Final = "copy"
_NARROWEST: Final = 8
_WIDEST_PROSE: Final = 100
"""Longer lines are hard to read; code and tables may be wider."""
CODE: Final = frozenset({"fence", "code_block"})
_MAY_BE_WIDER: Final = CODE | {"table"}
_NARROWEST_COLUMN: Final = 3
_BETWEEN: Final = " │ "
_STYLES: Final = {
    "strong": "bold",
    "em": "italic",
    "s": "strike",
    "link": "underline $secondary",
}
_CODE: Final = "$warning"
_DIM: Final = "$foreground 60%"
_LINE: Final = "$foreground 40%"
_BLANK: Final = Content("")

PLACES: Final = "places"
"""In the meta of a node: where its characters stand in the source, and of code its lines."""
AT: Final = "at "
"""A style that is never drawn: what follows is the place of a character in the source."""
_NUMBER: Final = "number"
"""In the meta of a code block: which one of the text it is, for the click that copies it."""


def lay_out(source: str, width: int, *, inside_code: bool = False) -> Lines:
    """The lines of a Markdown text, none wider than `width` cells. `inside_code`: it begins with
    the rest of a code block, whose head stands above it already."""
    return lay_out_tree(SyntaxTreeNode(parser().parse(source)), width, inside_code=inside_code)


def lay_out_tree(root: SyntaxTreeNode, width: int, *, inside_code: bool = False) -> Lines:
    """The lines of a parsed text. Where nodes have `PLACES`, each character of theirs has a span
    with the style `AT` and the place. A click on the head of a code block is the widget's action
    `copy_code` with the number of the block, from 0."""
    blocks = (node for node in root.walk(include_self=False) if node.type in CODE and node.content)
    for number, node in enumerate(blocks):
        if number or not inside_code:
            node.meta[_NUMBER] = number
    return _blocks(root.children, max(_NARROWEST, width))


def wrapped(content: Content, width: int) -> Lines:
    """Content on as many lines as it needs."""
    lines: Lines = []
    for line in content.split("\n", allow_blank=True):
        flat = line.expand_tabs(4)
        lines += [part.rstrip() for part in flat.divide(breaks(flat.plain, width))] or [_BLANK]
    return lines


def _blocks(nodes: Sequence[SyntaxTreeNode], width: int, depth: int = 0) -> Lines:
    lines: Lines = []
    for node in nodes:
        if lines and not node.hidden:
            lines.append(_BLANK)
        lines += _block(node, width, depth)
    return lines


def _block(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    draw: Callable[[SyntaxTreeNode, int, int], Lines] = _DRAW.get(node.type, _other)
    return draw(node, width if node.type in _MAY_BE_WIDER else min(width, _WIDEST_PROSE), depth)


def _paragraph(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    return wrapped(_inline(node), width)


def _heading(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    lines = wrapped(_inline(node).stylize_before("bold $primary"), width)
    if node.tag == "h1":
        lines.append(Content.styled("─" * max(line.cell_length for line in lines), "$primary"))
    return lines


def _code(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    language = node.info.split(maxsplit=1)[0] if node.info.strip() else ""
    coloured = highlight(node.content.rstrip("\n"), language=language or "text")
    inner = width - 4
    number = node.meta.get(_NUMBER)
    lines = [] if number is None else [_code_head(language, inner, number)]
    starts = node.meta.get(PLACES, ())
    for line, start in zip_longest(coloured.split("\n", allow_blank=True), starts):
        placed = line if start is None else _placed_line(line, start)
        flat = placed.expand_tabs(4)
        for part in flat.divide(folds(flat.plain, inner)):
            padded = part.pad_right(max(0, inner - part.cell_length)).pad(2, 2)
            lines.append(padded.stylize_before("on $panel"))
    return lines


def _code_head(language: str, width: int, number: int) -> Content:
    """The language, and what copies the block."""
    label = fitting(language, max(0, width - len(_COPY) - 1))
    gap = " " * max(0, width - cell_len(label) - len(_COPY))
    click = Style.from_meta({"@click": f"copy_code({number})"})
    head = Content.assemble((label, _DIM), gap, (_COPY, click))
    return head.pad(2, 2).stylize_before("on $panel")


def _formula(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    return [line.pad_left(2) for line in wrapped(_formula_content(node), width - 2)]


def _formula_content(node: SyntaxTreeNode) -> Content:
    """A formula as Unicode, else as it is written."""
    places, shown = node.meta.get(PLACES, ()), readable(node.content)
    if shown is None:
        shown, style = as_written(node.content, node.markup), _CODE if "\\" in node.content else ""
        placed = _placed_spans(len(node.markup), places)
    else:
        style = "italic"
        placed = _placed_spans(0, [places[min(n, len(places) - 1)] for n in range(len(shown))]
                               if places else ())  # fmt: skip
    return Content(shown, [Span(0, len(shown), style), *placed])


def _list(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    start = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else 0
    last = start + len(node.children) - 1
    indent = len(f"{last}. ") if node.type == "ordered_list" else 2
    tight = all(child.hidden for item in node.children for child in item.children[:1])
    lines: Lines = []
    for number, item in enumerate(node.children, start):
        if lines and not tight:
            lines.append(_BLANK)
        mark = f"{number}." if node.type == "ordered_list" else _BULLETS[depth % len(_BULLETS)]
        mark = _TASKS.get(_is_done(item), mark)
        body = _item(item, max(_NARROWEST, width - indent), depth) or [_BLANK]
        lines.append(Content.assemble((mark.rjust(indent - 1) + " ", "$primary"), body[0]))
        lines += [line.pad_left(indent) if line.plain else line for line in body[1:]]
    return lines


def _is_done(item: SyntaxTreeNode) -> bool | None:
    """Whether the task of an item is done; None where it is none."""
    if "task-list-item" not in str(item.attrs.get("class", "")):
        return None
    box = next(node for node in item.walk() if node.type == "html_inline")
    return "checked=" in box.content


def _item(item: SyntaxTreeNode, width: int, depth: int) -> Lines:
    lines: Lines = []
    for index, child in enumerate(item.children):
        is_list = child.type in {"bullet_list", "ordered_list"}
        if index and not child.hidden and not is_list:
            lines.append(_BLANK)
        lines += _block(child, width, depth + 1)
    return lines


def _quote(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    body = _blocks(node.children, max(_NARROWEST, width - 2), depth)
    return [Content.assemble(("▌ ", "$accent"), line.stylize_before(_DIM)) for line in body]


def _rule(_: SyntaxTreeNode, width: int, __: int) -> Lines:
    return [Content.styled("─" * width, "$foreground 30%")]


def _table(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    cells = [row.children for part in node.children for row in part.children]
    sides = [_side(cell) for cell in cells[0]] if cells else []
    return table_lines([[_inline(cell) for cell in row] for row in cells], width, sides)


def _side(cell: SyntaxTreeNode) -> Alignment:
    """Where the cells of its column stand."""
    style = str(cell.attrs.get("style", ""))
    return next((side for side in _SIDES if style.endswith(side)), "left")


def _other(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    if node.children:
        return _blocks(node.children, width, depth)
    return wrapped(Content(node.content), width)


class _Inline:
    def __init__(self) -> None:
        self.text = ""
        self.spans: list[Span] = []

    def add(self, text: str, style: str = "", places: Sequence[int] = ()) -> None:
        if style and text:
            self.spans.append(Span(len(self.text), len(self.text) + len(text), style))
        self.spans += _placed_spans(len(self.text), places)
        self.text += text

    def walk(self, nodes: Iterable[SyntaxTreeNode]) -> None:
        for node in nodes:
            self._node(node)

    def _node(self, node: SyntaxTreeNode) -> None:
        match node.type:
            case "softbreak" | "hardbreak":
                self.add("\n")
            case "code_inline":
                self.add(node.content, _CODE, node.meta.get(PLACES, ()))
            case "image":
                self.add(f"▣ {node.content}", "italic")
                self._address(str(node.attrs.get("src", "")))
            case "text" | "text_special":
                begin = 0 if self.text else len(node.content) - len(node.content.lstrip(" "))
                self.add(node.content[begin:], "", node.meta.get(PLACES, ())[begin:])
            case "math_inline" | "math_inline_double":
                formula, before = _formula_content(node), len(self.text)
                self.spans += [Span(it.start + before, it.end + before, it.style)
                               for it in formula.spans]  # fmt: skip
                self.text += formula.plain
            case "html_inline":  # the box of a task, which is the mark of its item
                pass
            case _:
                self._nested(node)

    def _nested(self, node: SyntaxTreeNode) -> None:
        start = len(self.text)
        self.walk(node.children)
        style = _STYLES.get(node.type)
        if style and len(self.text) > start:
            self.spans.append(Span(start, len(self.text), style))
        if node.type == "link":
            address = str(node.attrs.get("href", ""))
            shown = self.text[start:]
            if address.removeprefix("mailto:").removeprefix("http://") != shown:
                self._address(address if address != shown else "")

    def _address(self, address: str) -> None:
        if address:
            self.add(f" ({address})", _DIM)


def _placed_spans(begin: int, places: Sequence[int]) -> list[Span]:
    return [Span(begin + n, begin + n + 1, f"{AT}{place}") for n, place in enumerate(places)]


def _placed_line(line: Content, start: int) -> Content:
    spans = _placed_spans(0, range(start, start + len(line.plain)))
    return Content(line.plain, [*line.spans, *spans])


def _inline(node: SyntaxTreeNode) -> Content:
    """The content of a block's `inline` children."""
    writer = _Inline()
    for child in node.children:
        writer.walk(child.children if child.type == "inline" else [child])
    return Content(writer.text, spans=writer.spans)


def column_widths(natural: list[int], width: int) -> list[int]:
    """The natural widths, the widest made narrower until all fit."""
    widths = [max(1, size) for size in natural]
    room = width - len(_BETWEEN) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROWEST_COLUMN:
        widest = widths.index(max(widths))
        second = max((size for size in widths if size < widths[widest]), default=_NARROWEST_COLUMN)
        surplus = sum(widths) - room
        widths[widest] = max(_NARROWEST_COLUMN, second, widths[widest] - surplus)
        if widths[widest] == second and sum(widths) > room:
            widths[widest] -= 1
    return widths


def table_lines(rows: list[list[Content]], width: int, sides: Sequence[Alignment] = ()) -> Lines:
    """A table whose cells wrap: a head, a line under it, and the rows; `sides` say where the cells
    of each column stand, at the left unless given."""
    if not rows:
        return []
    columns = max(len(row) for row in rows)
    padded = [[*row, *[_BLANK] * (columns - len(row))] for row in rows]
    natural = [max(row[index].cell_length for row in padded) for index in range(columns)]
    widths = column_widths(natural, width)
    missing: list[Alignment] = ["left"] * (columns - len(sides))
    sides = [*sides, *missing]
    head = [cell.stylize_before("bold") for cell in padded[0]]
    rule = "─┼─".join("─" * size for size in widths)
    lines = [*_row(head, widths, sides), Content.styled(rule, _LINE)]
    for row in padded[1:]:
        lines += _row(row, widths, sides)
    return lines


def _row(cells: list[Content], widths: list[int], sides: Sequence[Alignment]) -> Lines:
    columns = [wrapped(cell, size) for cell, size in zip(cells, widths, strict=True)]
    lines: Lines = []
    for index in range(max(len(column) for column in columns)):
        parts: list[Content | tuple[str, str]] = []
        for column, size, side in zip(columns, widths, sides, strict=True):
            cell = column[index] if index < len(column) else _BLANK
            if parts:
                parts.append((_BETWEEN, _LINE))
            parts.append(_placed(cell, size, side))
        lines.append(Content.assemble(*parts).rstrip())
    return lines


def _placed(cell: Content, size: int, side: Alignment) -> Content:
    room = max(0, size - cell.cell_length)
    before = {"left": 0, "center": room // 2, "right": room}[side]
    return cell.pad_left(before).pad_right(room - before)


_DRAW: Final[dict[str, Callable[[SyntaxTreeNode, int, int], Lines]]] = {
    "paragraph": _paragraph,
    "heading": _heading,
    "fence": _code,
    "code_block": _code,
    "bullet_list": _list,
    "ordered_list": _list,
    "blockquote": _quote,
    "hr": _rule,
    "table": _table,
    "math_block": _formula,
}
