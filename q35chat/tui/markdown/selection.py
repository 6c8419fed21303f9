"""Which part of a Markdown source is meant by what is selected of its lines on the screen.

The same layout that is drawn is made once more with the place in the source of each character, so
that what is copied is the source: no padding, no wraps, the marks of what is selected as a whole.
Knows no widget.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from markdown_it.tree import SyntaxTreeNode
from textual.content import Content

from q35chat.tui.markdown.formula_rules import FORMULAS
from q35chat.tui.markdown.layout import AT, CODE, PLACES, lay_out_tree
from q35chat.tui.markdown.source import parser

_MARKED: Final = frozenset({"strong", "em", "s", "link"})
_TEXTS: Final = FORMULAS | {"text", "text_special", "code_inline"}
_TASK: Final = re.compile(r"[\s>]*([-*+]|\d+[.)])\s+\[[ xX]\]\s+")
_BREAKS: Final = {" ": "\n"}

Spot = tuple[int, int]
"""A line and a character in it."""


def selected_source(
    source: str, width: int, start: Spot | None, end: Spot | None, *, inside_code: bool = False
) -> str:
    """The part of `source` that is selected from `start` to before `end` of the lines that it has
    at this width; None is its beginning or its end. Of a formula it is the whole. `inside_code` is
    as for `lay_out`."""
    if start is None and end is None:
        return source
    tree = _placed_tree(source)
    lines = [_places(line) for line in lay_out_tree(tree, width, inside_code=inside_code)]
    everything = _written(tree)
    found = list(_within(lines, start, end))
    if not found:
        return ""
    begin, stop = _with_formulas(tree, min(found), max(found) + 1)
    code = _code_around(tree, begin, stop)
    if code is not None and start is not None and end is not None:
        return code.cut(begin, stop)
    if _takes_marks(lines, everything, start, end, (begin, stop)):
        begin = _mark_before(source, begin, everything)
        while stop < len(source) and source[stop] != "\n" and stop not in everything:
            stop += 1
    begin, stop = 0 if start is None else begin, len(source) if end is None else stop
    before, behind = _missing_marks(tree, source, begin, stop)
    part = source[begin:stop]
    return f"{before}{part if end is None else part.strip(' ')}{behind}"


def _mark_before(source: str, begin: int, everything: set[int]) -> int:
    """Where the marks before a place begin, the box of a task among them."""
    line = source.rfind("\n", 0, begin) + 1
    if task := _TASK.fullmatch(source, line, begin):
        return task.start(1)
    while begin and source[begin - 1] not in "\n)]" and begin - 1 not in everything:
        begin -= 1
    return begin


def _with_formulas(tree: SyntaxTreeNode, begin: int, stop: int) -> tuple[int, int]:
    """A range with the whole of the formulas that it has a part of."""
    for node in tree.walk(include_self=False):
        places = node.meta.get(PLACES) if node.type in FORMULAS else None
        if places and begin <= places[-1] and stop > places[0]:
            begin, stop = min(begin, places[0]), max(stop, places[-1] + 1)
    return begin, stop


def _written(tree: SyntaxTreeNode) -> set[int]:
    """The places of all that is written and no mark."""
    found: set[int] = set()
    for node in tree.walk(include_self=False):
        places = node.meta.get(PLACES, ())
        if node.type in CODE:
            for line, start in zip(node.content.split("\n"), places, strict=False):
                found.update(range(start, start + len(line)))
        else:
            found.update(places)
    return found


def _within(
    lines: Sequence[Sequence[int | None]], start: Spot | None, end: Spot | None
) -> Iterator[int]:
    first, left = start or (0, 0)
    last, right = end or (len(lines), 0)
    for number in range(first, min(last + 1, len(lines))):
        line = lines[number]
        begin = left if number == first else 0
        stop = right if number == last else len(line)
        yield from (place for place in line[begin:stop] if place is not None)


def _takes_marks(
    lines: Sequence[Sequence[int | None]],
    everything: set[int],
    start: Spot | None,
    end: Spot | None,
    found: tuple[int, int],
) -> bool:
    """Whether the marks around what is selected belong to it: unless it is a part of one line
    without any, such as a word."""
    if start is None or end is None or start[0] != end[0]:
        return True
    line = [place for place in lines[start[0]] if place is not None]
    whole = found == (min(line), max(line) + 1)
    return whole or not everything.issuperset(range(*found))


def _places(line: Content) -> list[int | None]:
    """For each character of a line its place in the source; None for what is no part of it."""
    places: list[int | None] = [None] * len(line.plain)
    for span in line.spans:
        if isinstance(span.style, str) and span.style.startswith(AT):
            places[span.start] = int(span.style[len(AT) :])
    return places


@dataclass(frozen=True, slots=True)
class _Code:
    """The lines of a code block, and where each begins in the source."""

    lines: Sequence[str]
    starts: Sequence[int]

    def cut(self, begin: int, stop: int) -> str:
        """The code from one place of the source to another, without what is before each line."""
        first, last = (bisect_right(self.starts, place) - 1 for place in (begin, stop - 1))
        lines = list(self.lines[first : last + 1])
        lines[-1] = lines[-1][: stop - self.starts[last]]
        lines[0] = lines[0][max(0, begin - self.starts[first]) :]
        return "\n".join(lines)


def _code_around(tree: SyntaxTreeNode, begin: int, stop: int) -> _Code | None:
    """The code block that holds the whole of a range."""
    for node in tree.walk(include_self=False):
        if node.type in CODE and node.meta.get(PLACES):
            code = _Code(node.content.rstrip("\n").split("\n"), node.meta[PLACES])
            end = code.starts[-1] + len(code.lines[-1])
            if code.starts[0] <= begin and stop <= end:
                return code
    return None


@dataclass(frozen=True, slots=True)
class _Marked:
    """Where text with marks around it begins and ends in the source, without and with the marks."""

    begin: int
    stop: int
    outer_begin: int
    outer_stop: int


def _missing_marks(tree: SyntaxTreeNode, source: str, begin: int, stop: int) -> tuple[str, str]:
    """The marks that a part of the source needs before and behind it: of what it has one half of,
    or cuts while it holds something else."""
    before, behind = "", ""
    for node in tree.walk(include_self=False):
        marked = _marked(node, source)
        if marked is None or not (begin < marked.stop and marked.begin < stop):
            continue
        opened, closed = begin <= marked.outer_begin, stop >= marked.outer_stop
        if closed and not opened:
            before += source[marked.outer_begin : marked.begin]
        elif opened and not closed:
            behind = source[marked.stop : marked.outer_stop] + behind
    return before, behind


def _marked(node: SyntaxTreeNode, source: str) -> _Marked | None:
    """What an inline node marks; None for one without marks, or that is not found as written."""
    if node.type == "code_inline":
        places = node.meta.get(PLACES)
        found = (places[0], places[-1] + 1) if places else None
    else:
        found = _extent(node, source) if node.type in _MARKED else None
    if found is None:
        return None
    begin, stop = found
    opening = "[" if node.type == "link" else node.markup
    closing = opening
    if node.type == "link":
        closing = source[stop : source.find(")", stop) + 1]
    elif node.type == "code_inline":  # with a space inside where it holds marks itself
        opening = source[source.rfind(opening, 0, begin) : begin]
        closing = source[stop : source.find(closing, stop) + len(closing)]
    around = _Marked(begin, stop, begin - len(opening), stop + len(closing))
    whole = source[around.outer_begin : begin] == opening and source[stop:].startswith(closing)
    return around if whole and opening and closing else None


def _extent(node: SyntaxTreeNode, source: str) -> tuple[int, int] | None:
    """Where the children of a node begin and end, with the marks of those that have some."""
    found: list[tuple[int, int]] = []
    for child in node.children:
        marked = _marked(child, source)
        if marked is not None:
            found.append((marked.outer_begin, marked.outer_stop))
        elif places := child.meta.get(PLACES):
            found.append((places[0], places[-1] + 1))
    return (found[0][0], found[-1][1]) if found else None


def _placed_tree(source: str) -> SyntaxTreeNode:
    """The parsed text, each piece of it with its place in the source."""
    root = SyntaxTreeNode(parser().parse(source))
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    writer = _Placer(source, lines, starts)
    for child in root.children:
        writer.place(child)
    return root


@dataclass
class _Placer:
    """Walks the tree in the order of the source, which it never goes back in."""

    source: str
    lines: Sequence[str]
    starts: Sequence[int]
    _at: int = 0
    _end: int = 0

    def place(self, node: SyntaxTreeNode) -> None:
        """Put their places into a node and all below it."""
        if node.map is not None:
            self._at = max(self._at, self.starts[node.map[0]])
            self._end = self.starts[min(node.map[1], len(self.lines))]
        if node.type in CODE:
            self._place_code(node)
        elif node.type in _TEXTS:
            self._place_text(node)
        else:
            for child in node.children:
                self.place(child)
            if node.type == "link" and self.source.startswith("](", self._at):
                self._at = self.source.find(")", self._at) + 1 or self._at

    def _place_code(self, node: SyntaxTreeNode) -> None:
        if node.map is None:
            return
        first = node.map[0] + (node.type == "fence")
        content = node.content.rstrip("\n").split("\n")
        node.meta[PLACES] = tuple(
            self.starts[first + number] + max(0, len(self.lines[first + number]) - len(line))
            for number, line in enumerate(content)
            if first + number < len(self.lines)
        )

    def _place_text(self, node: SyntaxTreeNode) -> None:
        found = self.source.find(node.content, self._at, self._end)
        if found >= 0:
            self._at = found + len(node.content)
            node.meta[PLACES] = tuple(range(found, self._at))
            return
        places: list[int] = []  # letter by letter, where there are escapes or a line break in code
        at = self._at
        for letter in node.content:
            there = (
                self.source.find(it, at, self._end) for it in (letter, _BREAKS.get(letter, letter))
            )
            place = min((it for it in there if it >= 0), default=-1)
            if place < 0:
                return
            places.append(place)
            at = place + 1
        node.meta[PLACES], self._at = tuple(places), at
