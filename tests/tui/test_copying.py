"""Copying one of several code blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from q35chat.chat.values import Turn
from q35chat.tui.markdown.layout import lay_out
from q35chat.tui.markdown.source import CodeBlock, code_blocks, numbered_blocks, parser
from q35chat.tui.widgets.answer import Piece
from tests.doubles.scripted_workspace import ScriptedWorkspace
from tests.tui.support import Chat, opened

OLDER = "```sh\nmake\n```\n"
NEWER = "```py\na = 1\n```\ntext\n```\n[red]b[/red] [/nope]\nc\n```\n"


@pytest.fixture(autouse=True)
def _no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


async def open_code(chat: Chat) -> list[str]:
    """A conversation with three blocks; what is sent to the terminal's clipboard."""
    turns = [Turn("user", "q"), Turn("assistant", OLDER), Turn("user", "q"),
             Turn("assistant", NEWER)]  # fmt: skip
    conversation = chat.workspace.add("code", turns)
    await chat.open(conversation)
    copied: list[str] = []
    chat.app.copy = lambda text, what: copied.append(f"{what}: {text}")  # type: ignore[method-assign]
    return copied


def test_blocks_are_numbered_from_the_newest_answer_in_reading_order() -> None:
    turns = [Turn("assistant", OLDER), Turn("user", "```\nmine\n```"), Turn("assistant", NEWER)]
    assert [block.text for block in numbered_blocks(turns)] == [
        "a = 1", "[red]b[/red] [/nope]\nc", "make",
    ]  # fmt: skip
    assert code_blocks(OLDER) == (CodeBlock("sh", "make"),)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1. first\n\n   ```py\n   def f():\n       pass\n   ```\n", "py: def f():\n    pass"),
        ("- a\n  - b\n    - c\n\n      ```sh\n      make\n      ```\n", "sh: make"),
        ("> said\n>\n> ```\n> quoted\n>   in\n> ```\n", ": quoted\n  in"),
        ("> - a\n>\n>   ~~~ c++ title\n>   int x;\n>   ~~~\n", "c++: int x;"),
        ("text\n\n    indented\n\n      more\n\ntext\n", ": indented\n\n  more"),
        ("- item\n\n      in a list\n", ": in a list"),
        ("\ttab\n", ": tab"),
        ("```py\nx = 1\n\n```\n", "py: x = 1\n"),
        ("1. a\n   ```\n   still open", ": still open"),
        ("```\n```\n", None),
        ("say ```code``` here, or\n    go on\n", None),
        ("<pre>\n```\n</pre>\n", ": </pre>"),
    ],
)
def test_a_block_is_copied_as_the_screen_shows_it_wherever_it_stands(
    text: str, found: str | None
) -> None:
    blocks = [f"{block.language}: {block.text}" for block in code_blocks(text)]
    assert blocks == ([] if found is None else [found])
    shown = "\n".join(line.plain for line in lay_out(text, 60))
    for block in code_blocks(text):
        assert all(line.strip() in shown for line in block.text.split("\n"))


@given(st.lists(st.sampled_from(["- ", "  ", "> ", "```", "~~~", "\n", "x", "    ", "1. "])))
def test_the_blocks_are_those_that_the_whole_parser_finds(parts: list[str]) -> None:
    text = "".join(parts)
    tokens = [it for it in parser().parse(text) if it.type in {"fence", "code_block"}]
    found = [token.content.removesuffix("\n") for token in tokens if token.content]
    assert [block.text for block in code_blocks(text)] == found


async def test_any_block_is_chosen_from_a_list_that_shows_it(chat: Chat) -> None:
    copied = await open_code(chat)
    await chat.press("f4")
    await chat.see("Copy a code block")
    assert "1 a = 1" in chat.flat
    assert "3 make" in chat.flat
    await chat.until(lambda: chat.flat.count("[red]b[/red] [/nope]") == 2)
    await chat.press("down")
    await chat.until(lambda: chat.flat.count("[red]b[/red] [/nope]") == 3)
    await chat.press("enter")
    await chat.until(lambda: copied == ["code block 2: [red]b[/red] [/nope]\nc"])


async def test_a_digit_in_the_list_copies_that_block_and_escape_none(chat: Chat) -> None:
    copied = await open_code(chat)
    await chat.press("f4", "9", "3")
    await chat.until(lambda: copied == ["code block 3: make"])
    await chat.press("f4", "escape")
    await chat.pilot.pause()
    assert len(copied) == 1
    assert len(chat.app.screen_stack) == 2


async def test_a_block_is_copied_by_its_number(chat: Chat) -> None:
    copied = await open_code(chat)
    await chat.press(*"/code 3", "enter")
    await chat.until(lambda: copied == ["code block 3: make"])
    await chat.press(*"/code 7", "enter")
    await chat.hear("There is no code block “7”; 1 to 3 are here")


async def test_the_palette_finds_each_block_and_shows_its_text_as_text(chat: Chat) -> None:
    copied = await open_code(chat)
    await chat.press("ctrl+p")
    await chat.see("Search for commands")
    await chat.press(*"code block 2")
    await chat.see("2 lines · [red]b[/red] [/nope]")
    await chat.press("enter")
    await chat.press("enter")
    await chat.until(lambda: copied == ["code block 2: [red]b[/red] [/nope]\nc"])


async def test_the_only_block_is_copied_at_once_without_its_fence() -> None:
    workspace = ScriptedWorkspace()
    conversation = workspace.add("code", [Turn("user", "q"), Turn("assistant", OLDER)])
    async with opened(workspace) as chat:
        await chat.open(conversation)
        await chat.press("f4")
        await chat.hear("the code block (4 characters)")


async def test_a_click_at_a_block_copies_all_of_it_however_the_screen_cuts_it(chat: Chat) -> None:
    code = "\n".join(f"line_{number} = {number}" for number in range(200))
    text = f"```sh\nmake\n```\n\nThen:\n\n```py\n{code}\n```\n\n- x\n\n  ```\n  last\n  ```\n"
    conversation = chat.workspace.add("c", [Turn("user", "q"), Turn("assistant", text)])
    copied: list[str] = []
    chat.app.copy = lambda text, what: copied.append(text)  # type: ignore[method-assign]
    await chat.open(conversation)
    pieces = list(chat.screen.query(Piece))
    assert [piece.inside_code for piece in pieces].count(True) >= 1
    for piece in pieces:
        heads = [line for line in piece.text_lines() if line.endswith("copy  ")]
        for number in range(len(heads)):
            await piece.run_action(f"copy_code({number + piece.inside_code})")
    assert copied == ["make", code, "last"]


async def test_a_click_on_its_head_copies_a_block(chat: Chat) -> None:
    copied = await open_code(chat)
    piece = chat.screen.query(Piece).last()
    place = piece.text_lines()[0].index("copy")
    await chat.click(piece, offset=(place + 1, 0))
    await chat.until(lambda: copied == ["the code block: a = 1"])
    await chat.click(piece, offset=(3, 1))
    assert len(copied) == 1
