"""`q35chat ask`: one question, one answer, out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from q35chat.chat.backend import ChatBackend
from q35chat.chat.conversation import StoredConversation
from q35chat.chat.events import Event, Finished
from q35chat.chat.values import Attachment, ChatSettings, SamplingSettings, Turn
from q35chat.commands.answering import answer, show_turn
from q35chat.commands.backend import LoadedModel, load_model
from q35chat.commands.checks import check_thinking
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.failures import INTERRUPTED
from q35chat.commands.keeping import after_one_turn, keeping
from q35chat.commands.model_choice import ModelChoice, choose_model, make_demo
from q35chat.commands.npu import DEFAULT_NPU, NpuOptions
from q35chat.commands.options import DEFAULT_SNAPSHOT_MIB
from q35chat.commands.prompt_input import checked_argument, read_prompt
from q35chat.commands.render import JsonRenderer, Renderer, StreamRenderer
from q35chat.commands.report import stats_lines
from q35chat.commands.sampling import chosen_sampling
from q35chat.commands.streaming import call_in_worker
from q35chat.settings import Settings, load_settings
from q35chat.user_input import Speculate
from q35chat.vision.loading import header, read_file

Load = Callable[[ModelChoice, int | None], LoadedModel]


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What `ask` was given; None and empty mean: not given. `sampling` holds given fields only."""

    prompt: str | None = None
    images: tuple[Path, ...] = ()
    system: str | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    as_json: bool = False
    stats: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    greedy: bool = False
    model_dir: Path | None = None
    max_image_tokens: int | None = None
    threads: int | None = None
    npu: NpuOptions = DEFAULT_NPU
    snapshot_mib: int = DEFAULT_SNAPSHOT_MIB
    speculate: Speculate | None = None
    session: str | None = None
    continues: bool = False
    keep: bool = True


def ask_once(options: AskOptions, console: Console, load: Load = load_model) -> int:
    """Answer one question; the exit code. Raises Q35Error before anything is printed."""
    chosen_sampling(SamplingSettings(), options.sampling, greedy=options.greedy)
    check_thinking(options.thinking, options.thinking_budget)
    for option, text in (("--system", options.system), *(("--stop", one) for one in options.stop)):
        checked_argument(text or "", option)
    status = StatusLine(console)
    status.show("reading what is piped in")
    try:
        prompt = read_prompt(options.prompt, sys.stdin.buffer if sys.stdin else None)
    finally:
        status.clear()
    for path in options.images:
        header(read_file(path), str(path))
    kept = keeping(console, options.session, latest=options.continues, keep=options.keep)
    settings = load_settings()
    choice = choose_model(options.model_dir, settings, lambda: make_demo(console.note))
    choice = replace(
        choice,
        npu=options.npu,
        snapshot_mib=options.snapshot_mib,
        speculate=options.speculate or settings.speculate,
    )
    status.show("loading the model")
    started = perf_counter()
    try:
        model = call_in_worker(lambda: load(choice, options.threads))
    finally:
        status.clear()
    load_ms = (perf_counter() - started) * 1000
    fresh = _fresh(settings, model.sampling)
    conversation = kept.conversation(model, fresh)
    if kept.damage:
        console.note(kept.damage)
    session = conversation.id if conversation else None
    renderer: Renderer = (
        JsonRenderer(console, load_ms, session) if options.as_json else StreamRenderer(console)
    )
    problem = ""
    if conversation is None:
        used = _chosen(options, fresh)
        turn = Turn("user", prompt, _pictures(options, used, model.backend))
        finished = answer(model.backend, [turn], used, renderer)
    else:
        try:
            finished = _answer_in(conversation, prompt, options, model.backend, renderer)
        finally:
            if problem := conversation.flush():
                console.note(f"not all of this answer is kept: {problem}")
    if options.stats:
        for line in stats_lines(finished, load_ms, session):
            console.note(line)
    if finished.reason == "cancelled":
        return INTERRUPTED
    return 1 if problem else 0


def _answer_in(
    conversation: StoredConversation,
    prompt: str,
    options: AskOptions,
    backend: ChatBackend,
    renderer: Renderer,
) -> Finished:
    before = conversation.settings()
    used = _chosen(options, before)
    events = conversation.send(prompt, _pictures(options, used, backend), settings=used)
    events = _keeping_settings(conversation, events, after_one_turn(before, used))
    return show_turn(events, conversation.cancel, renderer)


def _keeping_settings(
    conversation: StoredConversation, events: Iterator[Event], settings: ChatSettings
) -> Iterator[Event]:
    """The events of a turn; the conversation keeps `settings` as soon as it keeps the question."""
    first = next(events)
    if settings != conversation.settings():
        conversation.change_settings(settings)
    yield first
    yield from events


def _fresh(settings: Settings, sampling: SamplingSettings) -> ChatSettings:
    return ChatSettings(
        sampling=sampling,
        thinking=settings.thinking,
        max_image_tokens=settings.max_image_tokens,
    )


def _chosen(options: AskOptions, base: ChatSettings) -> ChatSettings:
    """`base` under what was given for this turn."""
    given: dict[str, Any] = {
        "system_prompt": options.system,
        "thinking": True if options.thinking_budget is not None else options.thinking,
        "thinking_budget": options.thinking_budget,
        "max_new_tokens": options.max_new_tokens,
        "stop": options.stop or None,
        "max_image_tokens": options.max_image_tokens,
    }
    return replace(
        base,
        sampling=chosen_sampling(base.sampling, options.sampling, greedy=options.greedy),
        **{name: value for name, value in given.items() if value is not None},
    )


def _pictures(
    options: AskOptions, settings: ChatSettings, backend: ChatBackend
) -> tuple[Attachment, ...]:
    return tuple(backend.attach(path, settings.max_image_tokens) for path in options.images)
