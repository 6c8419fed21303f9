"""The parser that reads every Markdown text, for the screen and for the clipboard alike."""

from __future__ import annotations

from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore, block, normalize
from markdown_it.token import Token


@lru_cache(maxsize=1)
def parser() -> MarkdownIt:
    """HTML in a model's text is text."""
    return MarkdownIt("gfm-like", {"html": False})


def block_tokens(source: str) -> list[Token]:
    """The blocks of a text, the text inside them not parsed: what stands in a line costs most."""
    state = StateCore(source, parser(), {})
    normalize(state)
    block(state)
    return state.tokens
