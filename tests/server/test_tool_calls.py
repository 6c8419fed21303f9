from __future__ import annotations

import json

import pytest

from q35chat.server.tool_calls import CallPiece, CallStream

SCHEMAS = {
    "weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "now": {},
}
AS_JSON = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern\\n{", "days": 2}}\n</tool_call>'
)
AS_TAGS = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n{\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"
)


def read(text: str, size: int, *, forced: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls in an answer that comes in parts of this size."""
    stream = CallStream(SCHEMAS, forced=forced)
    said, calls = "", dict[int, list[str]]()
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    for piece in (*(one for part in parts for one in stream.push(part)), *stream.flush()):
        if isinstance(piece, str):
            said += piece
        elif piece.broken:
            del calls[piece.index]
            said += piece.broken
        else:
            calls.setdefault(piece.index, [piece.name, ""])[1] += piece.arguments
    return said, [(name, arguments) for name, arguments in calls.values()]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("written", [AS_JSON, AS_TAGS])
def test_a_call_is_read_in_both_forms_however_it_comes(written: str, size: int) -> None:
    said, calls = read(f"I look.\n\n{written}\n{written}", size)
    assert said == "I look."
    assert [name for name, _ in calls] == ["weather", "weather"]
    assert [json.loads(arguments) for _, arguments in calls] == [{"city": "Bern\n{", "days": 2}] * 2


@pytest.mark.parametrize("written", [AS_JSON, AS_TAGS])
def test_arguments_come_before_the_call_is_whole(written: str) -> None:
    stream = CallStream(SCHEMAS)
    half = written[: written.index("Bern") + 2]
    pieces = [piece for character in half for piece in stream.push(character)]
    assert pieces
    assert all(isinstance(piece, CallPiece) for piece in pieces)
    so_far = "".join(piece.arguments for piece in pieces if isinstance(piece, CallPiece))
    assert so_far == '{"city": "Be'


@pytest.mark.parametrize(
    "broken",
    [
        "<tool_call>",
        "<tool_call>\nno call\n</tool_call>",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": {"city": "Be',
        '<tool_call>{"name": "weather", "arguments": {}} and more</tool_call>',
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        "<tool_call>\n<function=weather>\n<parameter=city>\nBern",
        "<tool_call>\n<function=weather>\nno parameter\n</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n<parameter=a>1</parameter><parameter=a>2</parameter>",
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_broken_call_is_text_to_the_letter(broken: str, size: int) -> None:
    assert read(f"Look: {broken}", size) == (f"Look: {broken}", [])


def test_a_call_without_its_end_at_the_end_is_one() -> None:
    assert read(AS_TAGS.removesuffix("</tool_call>"), 3)[1][0][0] == "weather"


def test_a_call_without_parameters_has_an_empty_object() -> None:
    assert read("<tool_call><function=now></function></tool_call>", 4) == ("", [("now", "{}")])


def test_a_forced_call_has_no_tags() -> None:
    assert read('{"name":"now","arguments":{}}', 2, forced=True) == ("", [("now", "{}")])


def test_an_answer_without_a_call_is_told_whole_with_its_white_space() -> None:
    assert read("a < b <tool \n\n", 1) == ("a < b <tool \n\n", [])
