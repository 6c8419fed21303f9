from __future__ import annotations

from q35chat.chat.values import Turn
from q35chat.tui.markdown.source import conversation_markdown


def test_a_conversation_from_a_summary_is_copied_with_it() -> None:
    turns = [Turn("user", "q"), Turn("assistant", "a")]
    copied = conversation_markdown("T", turns, "One.\n\nTwo.\n")
    assert copied.startswith(
        "# T\n\n> *What was said before, in short*\n>\n> One.\n>\n> Two.\n\n## You\n"
    )
