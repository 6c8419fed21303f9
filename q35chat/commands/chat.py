"""`q35chat chat`: the screen where there is a terminal for it, else a conversation line by line.

What only the model needs is imported when it is loaded: the first paint must not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from q35chat.ascend.options import DEFAULT_NPU
from q35chat.commands import options as opt
from q35chat.commands.console import Console, StatusLine, is_terminal
from q35chat.commands.personas import check_persona
from q35chat.commands.remote import check_endpoint
from q35chat.errors import UsageError
from q35chat.processes import program
from q35chat.settings import (
    Settings,
    change_settings,
    load_settings,
    take_over_interface,
)
from q35chat.text import safe_line

if TYPE_CHECKING:
    from q35chat.chat.backend import ChatBackend
    from q35chat.chat.conversation import Conversation
    from q35chat.chat.service import ModelEntry
    from q35chat.chat.values import ChatSettings, SamplingSettings
    from q35chat.chat.workspace import Workspace
    from q35chat.store import Store


@dataclass(frozen=True, slots=True)
class ChatOptions(opt.AnswererOptions):
    """What `chat` takes; None and empty mean: not given."""

    continues: opt.Continues = False
    session: opt.SessionOption = None
    images: opt.Images = None
    prompt: opt.FirstPrompt = ""
    pictures: opt.Pictures = None
    no_images: opt.NoImages = False
    persona: opt.Persona = None
    thinking: opt.Thinking = None
    thinking_budget: opt.ThinkingBudget = None
    reasoning_effort: opt.ReasoningEffort = None
    preserve_thinking: opt.PreserveThinking = None
    plain: Annotated[
        bool, typer.Option("--plain", help="Line by line, for a terminal without a screen.")
    ] = False


@opt.takes(ChatOptions)
def chat(options: ChatOptions) -> int:
    """Open the chat; the same as q35chat without a command."""
    return open_chat(options, Console.standard())


def open_chat(options: ChatOptions, console: Console) -> int:
    """Chat until the user leaves; the exit code. Raises Q35Error."""
    if options.no_images and options.pictures not in {None, "none"}:
        way = f"--pictures {options.pictures}"
        raise UsageError(f"--no-images shows no pictures; drop {way} or it")
    opt.check_thinking(options.thinking, options.thinking_budget)
    opt.check_session(options.session, latest=options.continues)
    check_endpoint(options)
    _check_new(options)
    problem = take_over_interface()
    settings = load_settings()
    check_persona(options.persona, settings)
    if options.plain:
        if problem:
            console.note(problem)
        return _line_by_line(options, settings, console)
    if sys.stdin is None or not (sys.stdin.isatty() and is_terminal(console.out)):
        raise UsageError(
            f'the chat needs a terminal; for one answer use {program()} ask "...", to chat line '
            f"by line {program()} chat --plain"
        )
    return _on_screen(options, settings, [problem] if problem else [])


def _check_new(options: ChatOptions) -> None:
    """Refuse what only a new chat can be given, where an old one is opened."""
    opens = "--continue" if options.continues else "--session"
    for option, given in (
        ("--persona", options.persona is not None),
        ("--thinking-budget", options.thinking_budget is not None),
        ("--thinking", options.thinking is True),
        ("--no-thinking", options.thinking is False),
        ("--reasoning-effort", options.reasoning_effort is not None),
        ("--preserve-thinking", options.preserve_thinking is True),
        ("--no-preserve-thinking", options.preserve_thinking is False),
        ("--max-image-tokens", options.max_image_tokens is not None),
    ):
        if given and (options.continues or options.session is not None):
            raise UsageError(f"{option} is for a new chat; {opens} opens one with its own")


def _conversation_id(store: Store, options: ChatOptions) -> str | None:
    """The chat to open, as it was named; None for a new one. Raises StoreError where there is no
    latest one."""
    return store.latest() if options.continues else options.session


def _line_by_line(options: ChatOptions, settings: Settings, console: Console) -> int:
    from q35chat.commands.lines import LineChat
    from q35chat.commands.streaming import call_in_worker
    from q35chat.store import Store

    first = _first_question(options)
    with Store() as store:
        if store.message:
            console.note(store.message)
        named = _conversation_id(store, options)
        session = None if named is None else store.resolve(named)
        status = StatusLine(console, in_lines=not console.can_rewrite)
        workspace = stored_workspace(store, options, settings, status.note)
        with status.showing(options.awaited):
            call_in_worker(workspace.load)
        conversation = workspace.pick(session)
        _tell_of_the_model(conversation, console)
        chat = LineChat(conversation, workspace.new, console, workspace.personas)
        if store.damaged_chat:
            console.note(store.damaged_chat)
        for path in options.images or ():
            chat.attach(path)
        try:
            if sys.stdin is not None and sys.stdin.isatty():
                return chat.talk(first)
            return chat.follow(sys.stdin.buffer if sys.stdin else None, first)
        finally:
            workspace.stop_idle()


def _tell_of_the_model(conversation: Conversation, console: Console) -> None:
    """Say who wrote the last answer, where that was another model."""
    before = conversation.steps[-1].model if conversation.steps else ""
    name = conversation.model.name
    if before and before != name:
        console.note(
            f"{safe_line(before)} wrote the last answer; {safe_line(name)} writes the next"
        )


def _first_question(options: ChatOptions) -> str:
    """What `--prompt` asks, empty for nothing. Raises UsageError for options that mean nothing
    without a screen, and where there is nothing to read."""
    from q35chat.commands.prompt_input import checked_argument

    if options.pictures not in {None, "none"}:
        raise UsageError(f"--plain shows no pictures; drop --pictures {options.pictures} or it")
    text = checked_argument(options.prompt, "the prompt")
    if sys.stdin is None and not text.strip():
        raise UsageError("--plain reads questions from stdin, which is closed; give --prompt")
    return text if text.strip() else ""


def _on_screen(options: ChatOptions, settings: Settings, problems: Sequence[str]) -> int:
    from q35chat.tui import garbage

    garbage.pause()
    try:
        return _screen(options, settings, problems)
    finally:
        garbage.resume()


def _screen(options: ChatOptions, settings: Settings, problems: Sequence[str]) -> int:
    from q35chat.commands.export_process import ChildExporter
    from q35chat.store import Store
    from q35chat.tui.app import run

    with Store() as store:
        workspace = stored_workspace(store, options, settings, lambda _: None)  # it has a banner
        try:
            return run(
                workspace,
                settings,
                conversation_id=_conversation_id(store, options),
                images=options.images or (),
                prompt=options.prompt,
                pictures="none" if options.no_images else options.pictures,
                exporter=ChildExporter(),
                problems=problems,
            )
        finally:
            workspace.stop_idle_soon()


def stored_workspace(
    store: Store, options: ChatOptions, settings: Settings, say: Callable[[str], None]
) -> Workspace:
    """The conversations in `store` over the chosen model, which is loaded when asked to."""
    from q35chat.chat.values import DEFAULTS, Persona
    from q35chat.chat.workspace import Workspace
    from q35chat.commands.personas import changes_for, new_chat, personas_of, plain_settings

    own: dict[str, SamplingSettings] = {}

    servers = {_table(name): name for name in settings.endpoint}

    def load_bundle(folder: Path) -> tuple[ChatBackend, ChatSettings]:
        from q35chat.bundle.foreign import open_bundle

        if folder in servers:
            plain: dict[str, Any] = {one.name: one.default for one in fields(opt.ModelOptions)}
            plain["max_image_tokens"] = options.max_image_tokens
            return load(replace(options, endpoint=servers[folder], model=None, **plain))
        here = replace(options, model_dir=folder, endpoint=None, model=None)
        if open_bundle(folder, check="names").manifest.target == "cpu":
            return load(replace(here, npu=DEFAULT_NPU))
        return load(replace(here, threads=None))

    def load_beside(folder: Path) -> tuple[ChatBackend, ChatSettings]:
        from q35chat.commands.model import check_room_beside

        if folder not in servers:
            check_room_beside(folder)
        sampling = own["sampling"]
        try:
            return load_bundle(folder)
        finally:
            own["sampling"] = sampling

    def load(asked: ChatOptions) -> tuple[ChatBackend, ChatSettings]:
        from q35chat.commands import model as models

        model = models.loader(asked, settings, say)()
        opt.check_offered(
            model.backend.model.offers, options.reasoning_effort, options.preserve_thinking
        )
        own["sampling"] = model.sampling
        return model.backend, _given(new_chat(settings, model.sampling, options.persona), options)

    def default() -> Persona:
        plain = plain_settings(settings, own["sampling"])
        return Persona(DEFAULTS, plain.system_prompt, plain.thinking, None, asdict(plain.sampling))

    def personas() -> Sequence[Persona]:
        return [default(), *personas_of(settings)]

    def keep(chat: ChatSettings) -> ChatSettings:
        nonlocal options, settings
        settings = change_settings(changes_for(chat, own["sampling"]))
        options = replace(
            options,
            persona=None,
            thinking=None,
            thinking_budget=None,
            reasoning_effort=None,
            preserve_thinking=None,
            max_image_tokens=None,
        )
        return new_chat(settings, own["sampling"], None)

    return Workspace(
        store,
        lambda: load(options),
        load_bundle,
        load_beside=load_beside,
        personas=personas,
        models=lambda: _models(settings),
        remote=options.endpoint is not None,
        keep=keep,
    )


def _table(name: str) -> Path:
    """What stands for a server of the settings where a bundle has its folder."""
    return Path(f"[endpoint.{name}]")


def _models(settings: Settings) -> Sequence[ModelEntry]:
    from q35chat.bundle.library import installed, own_name
    from q35chat.chat.service import ModelEntry
    from q35chat.text import pluralise, readable_size

    return [
        ModelEntry(
            it.name,
            it.path,
            own_name(it.path) or it.model,
            f"{it.model} · {it.target} · {it.precision} · {pluralise(it.capacity, 'slot')} · "
            f"{readable_size(it.size)}",
        )
        for it in installed()
    ] + [
        ModelEntry(name, _table(name), entry.model or name, f"server · {entry.url}", remote=True)
        for name, entry in settings.endpoint.items()
    ]


def _given(begun: ChatSettings, options: ChatOptions) -> ChatSettings:
    """How a new chat begins, under what was given for this run."""
    if options.thinking is not None or options.thinking_budget is not None:
        begun = begun.with_thinking(options.thinking is not False, options.thinking_budget)
    return replace(
        begun,
        reasoning_effort=options.reasoning_effort or begun.reasoning_effort,
        preserve_thinking=begun.preserve_thinking
        if options.preserve_thinking is None
        else options.preserve_thinking,
        max_image_tokens=options.max_image_tokens or begun.max_image_tokens,
    )
