"""What a server is asked with: turns and settings as the body of `/v1/chat/completions`.

Pure functions. Names beyond OpenAI's are those that vLLM, SGLang, llama-server and our own server
agree on; reasoning goes out under both of its names.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from q35chat.chat.values import PRESERVE, Attachment, ChatSettings, Turn

Message = dict[str, Any]
Encode = Callable[[Attachment, int], tuple[str, bytes]]
"""The MIME type and bytes to send of a picture that may take so many tokens."""

_EXTENDED: Final = ("top_k", "min_p", "repetition_penalty")
_BUDGETS: Final = ("thinking_token_budget", "reasoning_budget_tokens", "thinking_budget")
"""What vLLM, llama-server and our own server call the limit of reasoning."""


def messages_of(turns: Sequence[Turn], settings: ChatSettings, encode: Encode) -> list[Message]:
    """The turns as messages, pictures before the text of their turn, as data URIs."""
    found: list[Message] = []
    if settings.system_prompt:
        found.append({"role": "system", "content": settings.system_prompt})
    for turn in turns:
        pictures = [
            {"type": "image_url", "image_url": {"url": _data_uri(*encode(one, limit))}}
            for limit in (settings.max_image_tokens,)
            for one in turn.attachments
        ]
        content: object = turn.text
        if pictures:
            content = [*pictures, {"type": "text", "text": turn.text}]
        message: Message = {"role": turn.role, "content": content}
        if turn.reasoning:
            message |= {"reasoning": turn.reasoning, "reasoning_content": turn.reasoning}
        found.append(message)
    return found


def _data_uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def without_pictures(messages: Sequence[Message]) -> list[Message]:
    """The messages with their texts alone, to count them."""
    return [
        message if isinstance(message["content"], str)
        else {**message, "content": message["content"][-1]["text"]}
        for message in messages
    ]  # fmt: skip


def template_fields(messages: Sequence[Message], settings: ChatSettings) -> dict[str, Any]:
    """What decides the prompt beside the messages: whether the last one is gone on with, and the
    variables of the chat template."""
    goes_on = bool(messages) and messages[-1]["role"] == "assistant"
    variables: dict[str, Any] = {"enable_thinking": settings.thinking and not goes_on}
    if settings.preserve_thinking is not None:
        variables[PRESERVE] = settings.preserve_thinking
    return {
        "messages": list(messages),
        "chat_template_kwargs": variables,
        "add_generation_prompt": not goes_on,
        "continue_final_message": goes_on,
    }


def body_of(
    model: str, messages: Sequence[Message], settings: ChatSettings, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole body; `extra` is for servers that are known to understand it."""
    sampling = settings.sampling
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        **{name: getattr(sampling, name) for name in _EXTENDED},
        **template_fields(messages, settings),
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if settings.stop:
        body["stop"] = list(settings.stop)
    if settings.max_new_tokens is not None:
        room = settings.thinking_budget or 0 if settings.thinking else 0
        body["max_tokens"] = settings.max_new_tokens + room
    if settings.reasoning_effort:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.thinking and settings.thinking_budget is not None:
        body |= dict.fromkeys(_BUDGETS, settings.thinking_budget)
    return {**body, **extra}
