"""Texts taken out of a conversation: its code blocks, and the whole as Markdown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from q35chat.chat.summary import HEADING, quotation
from q35chat.chat.values import Turn

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """What stands in a fence: the language it names, perhaps none, and the lines inside."""

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


def code_blocks(text: str) -> list[CodeBlock]:
    """The fenced code blocks, in order; an unclosed one counts to the end."""
    blocks: list[CodeBlock] = []
    fence, language, lines = "", "", list[str]()
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if not fence:
            if mark:
                fence, lines = mark[1], []
                language = " ".join(line[mark.end() :].split()[:1])
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            blocks.append(CodeBlock(language, "\n".join(lines)))
            fence = ""
        else:
            lines.append(line)
    if fence and lines:
        blocks.append(CodeBlock(language, "\n".join(lines)))
    return blocks


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
