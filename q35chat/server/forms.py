"""The form that an answer must have: any, JSON, JSON by a schema, or a call of a tool.

Where the form is forced, the tokens of the answer are constrained to it. Knows the words of
OpenAI's protocols for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from q35chat.chat.engine import ChatEngine
from q35chat.chat.values import Constraint, Tools
from q35chat.json_reader import Fields
from q35chat.server.body import section, sound, text
from q35chat.server.problems import RefusedError
from q35chat.server.reply import Parsing
from q35chat.text import safe_line


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is `parsed`, and what its tokens have to spell."""

    parsing: Parsing = field(default_factory=Parsing)
    constraint: Constraint | None = None


def form_of_choice(engine: ChatEngine, tools: Tools, choice: str) -> tuple[Tools, Form]:
    """The tools that may be called, and the form, where the model may choose ("auto"), must call
    one ("required") or the one with this name, or may call "none". Raises RefusedError."""
    if choice == "none" or not tools:
        if choice not in ("none", "auto"):
            raise RefusedError("tool_choice names a tool, and there are none", param="tool_choice")
        return (), Form()
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if choice == "auto":
        return tools, Form(Parsing(schemas))
    if choice != "required" and choice not in schemas:
        said = safe_line(choice, 60)
        raise RefusedError(f"tool_choice: there is no tool {said!r}", param="tool_choice")
    names = list(schemas) if choice == "required" else [choice]
    constraint = engine.constraint({"anyOf": [_call(name, schemas[name]) for name in names]})
    return tools, Form(Parsing(schemas, forced=True), constraint)


def with_format(engine: ChatEngine, form: Form, body: Fields, name: str) -> Form:
    """`form` with the format of the answer in the field `name`. Raises RefusedError, UsageError
    for a schema that cannot be kept."""
    wanted = section(body, name)
    kind = text(wanted, "type", "text")
    if kind == "text":
        return form
    if form.parsing.forced:
        raise RefusedError(f"{name} and a forced tool_choice contradict each other", param=name)
    if kind == "json_object":
        return Form(constraint=engine.constraint({"type": "object"}))
    if kind == "grammar":
        return Form(constraint=engine.constraint(_grammar(wanted, name)))
    if kind != "json_schema":
        known, said = "text, json_object, json_schema or grammar", safe_line(kind, 60)
        raise RefusedError(f"{name}: type must be {known}, found {said!r}", param=name)
    inner = section(wanted, "json_schema") if wanted.has("json_schema") else wanted
    schema = inner.raw("schema")
    if not isinstance(schema, dict):
        raise RefusedError(f"{name}: a schema is needed, an object", param=name)
    return Form(constraint=engine.constraint(sound(schema, name)))


def _grammar(wanted: Fields, name: str) -> str:
    """The grammar of a format as OpenAI's custom tools have it. Raises RefusedError."""
    syntax = text(wanted, "syntax", "lark")
    if syntax != "lark":
        said = safe_line(syntax, 60)
        raise RefusedError(f"{name}: the syntax of a grammar is lark, found {said!r}", param=name)
    return text(wanted, "definition")


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The schema of a call."""
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
