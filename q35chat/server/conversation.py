"""Messages as OpenAI's clients send them, as turns for the model.

Pictures come as data URIs; nothing is fetched. What the model wrote is recognised by its text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from q35chat.chat.engine import ChatEngine
from q35chat.chat.values import Attachment, Role, ToolCall, Tools, Turn
from q35chat.json_reader import Fields
from q35chat.server.answers import OwnAnswers
from q35chat.server.body import MOST_NAMED, objects, section, sound, text
from q35chat.server.problems import RefusedError
from q35chat.text import safe_line

ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_DATA: Final = re.compile(r"data:(?:[\w.+/-]*)(?:;[\w=-]+)*;base64,", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MessageReader:
    """Reads messages for one model; a picture takes at most `max_image_tokens`."""

    engine: ChatEngine
    answers: OwnAnswers
    max_image_tokens: int

    def turns(self, messages: Sequence[Fields]) -> tuple[Turn, ...]:
        """The turns of a conversation, instructions that come first as one. Raises RefusedError,
        PictureError."""
        if not messages:
            raise RefusedError("messages: at least one is needed", param="messages")
        return leading_merged([self._turn(message) for message in messages])

    def _turn(self, message: Fields) -> Turn:
        role = ROLES.get(name := text(message, "role"))
        if role is None:
            said = safe_line(name, 60)
            raise RefusedError(
                f"{message.where}: role must be one of {', '.join(ROLES)}, found {said!r}",
                param="messages",
            )
        said, pictures = self.content(message, "content")
        if pictures and role != "user":
            raise RefusedError(f"{message.where}: only a user shows pictures", param="messages")
        if role == "assistant":
            reasoning = text(message, "reasoning", text(message, "reasoning_content", ""))
            calls = objects(message, "tool_calls")
            return self.answer(said, reasoning, [_call(call) for call in calls])
        if not message.has("content"):
            raise RefusedError(f"{message.where} lacks the field 'content'", param="messages")
        return Turn(role, said, pictures)

    def answer(self, said: str, reasoning: str, calls: Sequence[tuple[str, ToolCall]]) -> Turn:
        """An answer of the model, by its text and the ids and contents of its calls."""
        own = self.answers.find(said, tuple(ident for ident, _ in calls))
        if own is not None:
            return Turn("assistant", own.text, reasoning=reasoning, token_ids=own.token_ids)
        return Turn("assistant", said, reasoning=reasoning, calls=tuple(call for _, call in calls))

    def content(self, fields: Fields, name: str) -> tuple[str, tuple[Attachment, ...]]:
        """A text, or parts that are texts and pictures: the texts on lines of their own, and the
        pictures. Raises RefusedError, PictureError."""
        value = fields.raw(name)
        if value is None:
            return "", ()
        if isinstance(value, str):
            return text(fields, name), ()
        texts, pictures = list[str](), list[Attachment]()
        for part in objects(fields, name):
            match text(part, "type"):
                case "text" | "input_text" | "output_text":
                    texts.append(text(part, "text"))
                case "refusal":
                    texts.append(text(part, "refusal"))
                case "image_url":
                    url = part.raw("image_url")
                    where = part if isinstance(url, str) else section(part, "image_url")
                    pictures.append(
                        self.picture(text(where, "image_url" if where is part else "url"))
                    )
                case "input_image":
                    pictures.append(self.picture(text(part, "image_url")))
                case other:
                    raise RefusedError(
                        f"{fields.where}: {part.where} has the type {safe_line(other, 60)!r}; "
                        "text and pictures can be read",
                        param="messages",
                    )
        return "\n".join(texts), tuple(pictures)

    def picture(self, url: str) -> Attachment:
        """The picture in a data URI. Raises RefusedError, PictureError."""
        found = _DATA.match(url)
        if found is None:
            raise RefusedError(
                "pictures are not fetched: send a data URI, data:image/png;base64,...",
                param="image_url",
            )
        return self.picture_of(url[found.end() :])

    def picture_of(self, data: str) -> Attachment:
        """The picture in `data`, which is Base64. Raises RefusedError, PictureError."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RefusedError(f"a picture is not Base64: {error}", param="image_url") from error
        return self.engine.attach_data(content, "picture", self.max_image_tokens)


def leading_merged(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """`turns` with the instructions that come first as one."""
    count = next((n for n, turn in enumerate(turns) if turn.role != "system"), len(turns))
    texts = [turn.text.strip() for turn in turns[:count]]
    merged = "\n\n".join(filter(None, texts))
    return (*([Turn("system", merged)] if merged else []), *turns[count:])


def tools_of(body: Fields) -> Tools:
    """The tools in a request, as a template is given them. Raises RefusedError."""
    found = [_tool(one) for one in objects(body, "tools")]
    _check_names(body, (tool["function"]["name"] for tool in found))
    return tuple(found)


def _tool(tool: Fields) -> dict[str, Any]:
    kind = text(tool, "type", "function")
    if kind != "function":
        raise RefusedError(
            f"{tool.where} has the type {safe_line(kind, 60)!r}; only functions are supported",
            param="tools",
        )
    function = section(tool, "function") if tool.has("function") else tool
    return function_tool(
        text(function, "name"), text(function, "description", ""), function.raw("parameters")
    )


def function_tool(name: str, description: str, parameters: object) -> dict[str, Any]:
    """A tool in the form of chat templates. Raises RefusedError."""
    if not 0 < len(name) <= MOST_NAMED or not re.fullmatch(r"[\w.:-]+", name):
        raise RefusedError(f"{safe_line(name, 60)!r} is no name of a tool", param="tools")
    if parameters is not None and not isinstance(parameters, dict):
        raise RefusedError(f"tool {name}: parameters must be a JSON schema", param="tools")
    function = {"name": name, "description": description}
    function |= {"parameters": sound(parameters or {"type": "object", "properties": {}}, name)}
    return {"type": "function", "function": function}


def _check_names(body: Fields, names: Iterable[str]) -> None:
    known = list(names)
    if len(set(known)) < len(known):
        raise RefusedError(f"{body.where}: two tools have one name", param="tools")


def _call(call: Fields) -> tuple[str, ToolCall]:
    function = section(call, "function")
    arguments = checked_arguments(function.raw("arguments"), call.where)
    return text(call, "id", ""), ToolCall(text(function, "name"), arguments)


def checked_arguments(value: object, where: str) -> str:
    """The text of a JSON object, given so or as the object. Raises RefusedError."""
    try:
        found = json.loads(value or "{}") if isinstance(value, str) else value or {}
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"{where}: arguments are not JSON ({error})", param="messages"
        ) from error
    if not isinstance(found, dict):
        raise RefusedError(f"{where}: arguments must be a JSON object", param="messages")
    return json.dumps(sound(found, where), ensure_ascii=False)
