"""Markdown as lines of styled text at a given width: one widget can show any piece of it.

A widget for each block makes every layout as dear as the whole conversation is long; lines do
not. Knows no widget; colours are theme variables, resolved when drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from markdown_it.tree import SyntaxTreeNode
from textual.content import Content
from textual.highlight import highlight

from q35chat.tui.markdown.inline import inline
from q35chat.tui.markdown.parser import parser
from q35chat.tui.markdown.table import table_lines
from q35chat.tui.markdown.wrapping import breaks, folds

Lines = list[Content]

_BULLETS: Final = "•◦▪"
_NARROWEST: Final = 8
_DIM: Final = "$foreground 60%"
_BLANK: Final = Content("")


def lay_out(source: str, width: int) -> Lines:
    """The lines of a Markdown text, none wider than `width` cells."""
    root = SyntaxTreeNode(parser().parse(source))
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
    return draw(node, width, depth)


def _paragraph(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    return wrapped(inline(node), width)


def _heading(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    lines = wrapped(inline(node).stylize_before("bold $primary"), width)
    if node.tag == "h1":
        lines.append(Content.styled("─" * max(line.cell_length for line in lines), "$primary"))
    return lines


def _code(node: SyntaxTreeNode, width: int, _: int) -> Lines:
    language = node.info.split(maxsplit=1)[0] if node.info.strip() else "text"
    coloured = highlight(node.content.rstrip("\n"), language=language)
    inner = width - 4
    lines: Lines = []
    for line in coloured.split("\n", allow_blank=True):
        flat = line.expand_tabs(4)
        for part in flat.divide(folds(flat.plain, inner)):
            padded = part.pad_right(max(0, inner - part.cell_length)).pad(2, 2)
            lines.append(padded.stylize_before("on $panel"))
    return lines


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
        body = _item(item, max(_NARROWEST, width - indent), depth) or [_BLANK]
        lines.append(Content.assemble((mark.rjust(indent - 1) + " ", "$primary"), body[0]))
        lines += [line.pad_left(indent) if line.plain else line for line in body[1:]]
    return lines


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
    rows = [
        [inline(cell) for cell in row.children] for part in node.children for row in part.children
    ]
    return table_lines(rows, width, wrapped)


def _other(node: SyntaxTreeNode, width: int, depth: int) -> Lines:
    if node.children:
        return _blocks(node.children, width, depth)
    return wrapped(Content(node.content), width)


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
}
