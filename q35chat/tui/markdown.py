"""Texts taken out of a conversation: its code blocks, and the whole as Markdown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from q35chat.chat.values import Turn

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


def code_blocks(text: str) -> list[str]:
    """The contents of the fenced code blocks, in order; an unclosed one counts to the end."""
    blocks: list[str] = []
    fence, lines = "", list[str]()
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if not fence:
            fence = mark[1] if mark else ""
            lines = []
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            blocks.append("\n".join(lines))
            fence = ""
        else:
            lines.append(line)
    if fence and lines:
        blocks.append("\n".join(lines))
    return blocks


def conversation_markdown(title: str, turns: Iterable[Turn]) -> str:
    """The visible conversation for the clipboard; pictures are named."""
    parts = [f"# {title}"] if title else []
    for turn in turns:
        if turn.role == "system":
            continue
        pictures = [f"*picture: {picture.name}*" for picture in turn.attachments]
        heading = "## You" if turn.role == "user" else "## Answer"
        parts.append("\n\n".join([heading, *pictures, turn.text.strip()]))
    return "\n\n".join(parts) + "\n"
