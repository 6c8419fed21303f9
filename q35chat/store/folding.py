"""One spelling for search: width, case and composition of letters do not matter."""

from __future__ import annotations

import unicodedata


def fold(text: str) -> str:
    """`text` in compatibility composition and folded case."""
    return unicodedata.normalize("NFKC", text).casefold()
