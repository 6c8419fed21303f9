"""Markdown as it is written: its parser, the code blocks in it, and a conversation as a whole.

The parser is imported with the first text: the first paint must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from q35chat.chat.summary import quotation
from q35chat.chat.values import HEADING, Turn

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_MARKS: Final = ("```", "~~~", "    ", "\t")
"""Each code block has one of these."""
_TYPES: Final = frozenset({"fence", "code_block"})


@lru_cache(maxsize=1)
def parser() -> MarkdownIt:
    """The parser of every Markdown text. HTML in a model's text is text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415
    from mdit_py_plugins.tasklists import tasklists_plugin  # noqa: PLC0415

    from q35chat.tui.markdown.formula_rules import formula_rules  # noqa: PLC0415

    return MarkdownIt("gfm-like", {"html": False}).use(tasklists_plugin).use(formula_rules)


def block_tokens(source: str) -> list[Token]:
    """The blocks of a text, the text inside them not parsed: what stands in a line costs most."""
    from markdown_it.rules_core import StateCore, block, normalize  # noqa: PLC0415

    state = StateCore(source, parser(), {})
    normalize(state)
    block(state)
    return state.tokens


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A block of code: the language that its fence names, perhaps none, and the lines inside."""

    language: str
    text: str

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.text.count("\n") + 1

    @property
    def first_line(self) -> str:
        """The first line that says something."""
        return next((line.strip() for line in self.text.split("\n") if line.strip()), "")


@lru_cache(maxsize=2_048)
def code_blocks(text: str) -> tuple[CodeBlock, ...]:
    """The code blocks that the screen shows as such, in order, wherever they stand: in lists and
    quotes, too, and without the indentation they have there. An unclosed one counts to the end,
    an empty one not at all."""
    if not any(mark in text for mark in _MARKS):
        return ()
    return tuple(
        CodeBlock(" ".join(token.info.split()[:1]), token.content.removesuffix("\n"))
        for token in block_tokens(text)
        if token.type in _TYPES and token.content
    )


def numbered_blocks(turns: Iterable[Turn]) -> list[CodeBlock]:
    """All code blocks of the answers: those of the newest answer first, each answer's in order."""
    answers = [turn.text for turn in turns if turn.role == "assistant"]
    return [block for text in reversed(answers) for block in code_blocks(text)]


def conversation_markdown(title: str, turns: Iterable[Turn], summary: str = "") -> str:
    """The visible conversation for the clipboard, below its summary; pictures are named."""
    parts = [f"# {title}"] if title else []
    if summary.strip():
        parts.append(quotation(HEADING, summary))
    for turn in turns:
        if turn.role == "system":
            continue
        pictures = [f"*picture: {picture.name}*" for picture in turn.attachments]
        heading = "## You" if turn.role == "user" else "## Answer"
        parts.append("\n\n".join([heading, *pictures, turn.text.strip()]))
    return "\n\n".join(parts) + "\n"
