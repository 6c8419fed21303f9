# ruff: noqa: PLC0415  (each client is imported where it is used: the others may be missing)
"""Well-known clients against a server, each as its own documentation has it.

Run by a Python that has them (`clients.py` does), with the client's name and the address of the
server. Knows nothing of q35chat; raises where an answer is not what it should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

QUESTION = "What is the capital of France?"
TOOL: dict[str, Any] = {
    "name": "now",
    "description": "The time of day.",
    "parameters": {
        "type": "object",
        "properties": {"zone": {"enum": ["UTC", "CET"]}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}


def openai(url: str) -> str:
    """Chat completions whole and streamed, responses, completions, models, errors."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    model = client.models.list().data[0].id
    messages: Any = [{"role": "developer", "content": "Be short."},
                     {"role": "user", "content": QUESTION}]  # fmt: skip
    whole = client.chat.completions.create(model=model, messages=messages, temperature=0)
    said = whole.choices[0].message.content
    parts, usage = [], None
    for chunk in client.chat.completions.create(
        model=model,
        messages=messages,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        parts += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    assert "".join(parts) == said
    assert usage is not None
    assert usage.prompt_tokens_details.cached_tokens > 0
    odds = client.chat.completions.create(
        model=model, messages=messages, logprobs=True, top_logprobs=3, max_completion_tokens=4
    )
    assert len(odds.choices[0].logprobs.content[0].top_logprobs) == 3
    answer = client.responses.create(model=model, input=QUESTION, temperature=0)
    with client.responses.stream(model=model, input=QUESTION, temperature=0) as stream:
        final = stream.until_done().get_final_response()
    assert final.output_text == answer.output_text
    text = client.completions.create(model=model, prompt="Hello", max_tokens=4)
    assert text.usage.completion_tokens <= 4
    assert _refusal(client, model) == "context_length_exceeded"
    return str(said)


def _refusal(client: Any, model: str) -> str | None:
    """The code with which a prompt is refused that is too long."""
    from openai import BadRequestError

    try:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "long " * 9000}]
        )
    except BadRequestError as error:
        return str(error.code)
    return None


def openai_tools(url: str) -> str:
    """A tool that must be called, as it streams, and its result sent back."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: Any = {"model": "any", "tools": [{"type": "function", "function": TOOL}]}
    asked |= {"temperature": 0, "max_completion_tokens": 300}
    with client.chat.completions.stream(
        messages=messages, tool_choice="required", **asked
    ) as stream:
        message = stream.until_done().get_final_completion().choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == TOOL["name"]
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "12:00"},
    ]
    after = client.chat.completions.create(messages=messages, **asked)
    assert after.usage.prompt_tokens_details.cached_tokens > 0
    return f"{call.function.arguments} -> {after.choices[0].message.content}"


def openai_schema(url: str) -> str:
    """An answer parsed into a type."""
    from openai import OpenAI
    from pydantic import create_model

    city: Any = create_model("City", name=(Literal["Bern", "Paris"], ...), large=(bool, ...))

    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    answer = client.chat.completions.parse(
        model="any",
        messages=[{"role": "user", "content": QUESTION}],
        response_format=city,
        max_completion_tokens=200,
        temperature=0,
    )
    return repr(answer.choices[0].message.parsed)


def anthropic(url: str) -> str:
    """Messages whole and streamed, and their tokens."""
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="none")
    messages: Any = [{"role": "user", "content": QUESTION}]
    asked: Any = {"model": "any", "max_tokens": 200, "messages": messages, "system": "Be short."}
    asked["extra_body"] = {"temperature": 0}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert said == whole.content[0].text == final.content[0].text
    assert final.usage.cache_read_input_tokens > 0
    counted = client.messages.count_tokens(model="any", messages=messages, system="Be short.")
    assert counted.input_tokens > 0
    return str(said)


def pydantic_ai(url: str) -> str:
    """An agent with a tool, which the model is made to call."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    called: list[str] = []
    settings: Any = {"temperature": 0, "max_tokens": 200}

    def now() -> str:
        """The time of day."""
        called.append("now")
        return "12:00"

    model = OpenAIChatModel("any", provider=provider)
    agent = Agent(model, model_settings=settings, tools=[now])
    free = agent.run_sync(QUESTION).output
    forced = Agent(model, output_type=bool, model_settings=settings)
    return f"{free!r}, tool called {len(called)} times; a bool: {forced.run_sync(QUESTION).output}"


def llm(url: str) -> str:
    """The `llm` command with a model of our server in its list."""
    home = Path(os.environ["LLM_USER_PATH"])
    (home / "extra-openai-models.yaml").write_text(
        f"- model_id: local\n  model_name: any\n  api_base: {url}/v1\n  api_key_name: none\n"
    )
    command = [str(Path(sys.executable).with_name("llm")), "-m", "local", "-o", "temperature", "0"]
    done = subprocess.run(
        [*command, "--key", "none", QUESTION], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def oterm(url: str) -> str:
    """oterm's own provider with our server in its configuration: models, room and an answer. Its
    command is only a screen; this is what stands behind it."""
    folder = Path(os.environ["OTERM_DATA_DIR"])
    (folder / "config.json").write_text(
        json.dumps({"openaiCompatible": {"q35chat": {"base_url": f"{url}/v1"}}})
    )
    from oterm.agent import get_agent
    from oterm.providers import get_available_providers, list_models, openai_compat_context_window

    provider = "openai-compat/q35chat"
    assert provider in get_available_providers()
    (model,) = list_models(provider)
    room = openai_compat_context_window("q35chat", model)
    assert room is not None
    agent = get_agent(provider, model, parameters={"temperature": 0}, context_window=room)
    return f"{room} slots: {agent.run_sync(QUESTION).output}"


CLIENTS = {
    one.__name__: one
    for one in (openai, openai_tools, openai_schema, anthropic, pydantic_ai, llm, oterm)
}


if __name__ == "__main__":
    sys.stdout.write(CLIENTS[sys.argv[1]](sys.argv[2]) + "\n")
