"""Inline Markdown as styled text. A link shows where it leads; nothing is hidden."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from markdown_it.tree import SyntaxTreeNode
from textual.content import Content, Span

_STYLES: Final = {
    "strong": "bold",
    "em": "italic",
    "s": "strike",
    "link": "underline $secondary",
}
_CODE: Final = "$warning"
_DIM: Final = "$foreground 60%"


class _Inline:
    def __init__(self) -> None:
        self.text = ""
        self.spans: list[Span] = []

    def add(self, text: str, style: str = "") -> None:
        if style and text:
            self.spans.append(Span(len(self.text), len(self.text) + len(text), style))
        self.text += text

    def walk(self, nodes: Iterable[SyntaxTreeNode]) -> None:
        for node in nodes:
            self._node(node)

    def _node(self, node: SyntaxTreeNode) -> None:
        match node.type:
            case "softbreak" | "hardbreak":
                self.add("\n")
            case "code_inline":
                self.add(node.content, _CODE)
            case "image":
                self.add(f"▣ {node.content}", "italic")
                self._address(str(node.attrs.get("src", "")))
            case "text" | "text_special" | "html_inline":
                self.add(node.content)
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


def inline(node: SyntaxTreeNode) -> Content:
    """The content of a block's `inline` children."""
    writer = _Inline()
    for child in node.children:
        writer.walk(child.children if child.type == "inline" else [child])
    return Content(writer.text, spans=writer.spans)
