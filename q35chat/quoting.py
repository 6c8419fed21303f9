"""Paths and names as a shell reads them back: copied from the screen, they can be typed. A leaf."""

from __future__ import annotations

import re
import shlex

from q35chat.safe_text import safe_line

_ESCAPED = re.compile(r"[\\'\x00-\x1f\x7f]|[^\x00-\x7f]")


def quoted(text: str) -> str:
    """`text` as one word for a shell; a newline and whatever else steers a terminal as escapes."""
    if safe_line(text, len(text)) == text:
        return shlex.quote(text)
    return f"$'{_ESCAPED.sub(_escape, text)}'"


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in "\\'":
        return f"\\{char}"
    if char == "\n":
        return r"\n"
    if safe_line(char) == char:
        return char
    is_byte = "\udc80" <= char <= "\udcff"  # of a file name that is not UTF-8
    data = char.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)
