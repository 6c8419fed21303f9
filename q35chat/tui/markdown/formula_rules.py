"""Where formulas stand in a Markdown text: rules for its parser.

`$…$` and `\\(…\\)` in a line, `$$…$$` and `\\[…\\]` there or on lines of their own; prices and
variables of a shell are none. Knows nothing of what is in a formula.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

FORMULAS: Final = frozenset({"math_inline", "math_inline_double", "math_block"})
"""The types of their tokens."""
_WORD: Final = re.compile(r"[^\W\d_]{3,}|\s[^\W\d_]{2,}\s")
_ENDS: Final = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}


def formula_rules(md: MarkdownIt) -> None:
    """Have a parser find formulas."""
    from mdit_py_plugins.dollarmath.index import math_inline_dollar  # noqa: PLC0415

    found = math_inline_dollar(allow_space=False, allow_digits=False, allow_double=True)

    def dollars(state: StateInline, silent: bool) -> bool:
        begin = state.pos
        if not found(state, True):
            return False
        if _is_text(state.src[begin : state.pos].strip("$")):
            state.pos = begin
            return False
        if not silent:
            state.pos = begin
            found(state, False)
        return True

    md.inline.ruler.before("escape", "math_inline", dollars)
    md.inline.ruler.before("escape", "math_brackets", _bracket_rule)
    ends = ["paragraph", "reference", "blockquote", "list"]
    md.block.ruler.before("fence", "math_block", _block_rule, {"alt": ends})


def as_written(content: str, markup: str) -> str:
    """The source of a formula with the marks around it."""
    return f"{markup}{content}{_ENDS.get(markup, markup)}"


def _is_text(content: str) -> bool:
    """Whether it is no formula: nothing, or words without a command of LaTeX."""
    return not content.strip() or ("\\" not in content and bool(_WORD.search(content)))


def _bracket_rule(state: StateInline, silent: bool) -> bool:
    markup = state.src[state.pos : state.pos + 2]
    if markup not in {"\\(", "\\["}:
        return False
    end = state.src.find(_ENDS[markup], state.pos + 2)
    content = state.src[state.pos + 2 : end]
    if end < 0 or _is_text(content) or content.strip().isdigit():
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content, token.markup = content, markup
    state.pos = end + 2
    return True


def _block_rule(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A formula that begins a line and ends one, without an empty line or a second beginning."""
    start = state.bMarks[first] + state.tShift[first]
    markup = state.src[start : start + 2]
    if markup not in {"$$", "\\["} or state.is_code_block(first):
        return False
    end, parts = _ENDS[markup], []
    for number in range(first, last):
        line = state.src[
            state.bMarks[number] + state.tShift[number] : state.eMarks[number]
        ].rstrip()
        inner = line[2:] if number == first else line
        if state.sCount[number] < state.blkIndent or not line:
            return False
        if inner.endswith(end):
            parts.append(inner.removesuffix(end))
            break
        if end in inner or (number > first and markup in inner):
            return False
        parts.append(inner)
    else:
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.content, token.markup, token.block = "\n".join(parts).strip("\n"), markup, True
        token.map = [first, number + 1]
        state.line = number + 1
    return True
