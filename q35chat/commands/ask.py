"""`q35chat ask`: one question, one answer, out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from q35chat.chat.backend import ChatBackend
from q35chat.chat.values import ChatSettings, SamplingSettings, Turn
from q35chat.commands.answering import answer
from q35chat.commands.backend import LoadedModel, load_model
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.failures import INTERRUPTED
from q35chat.commands.model_choice import ModelChoice, choose_model, make_demo
from q35chat.commands.prompt_input import read_prompt
from q35chat.commands.render import JsonRenderer, Renderer, StreamRenderer
from q35chat.commands.report import stats_lines
from q35chat.commands.sampling import chosen_sampling
from q35chat.commands.streaming import call_in_worker
from q35chat.settings import Settings, load_settings
from q35chat.vision.loading import header, read_file

Load = Callable[[ModelChoice, int | None], LoadedModel]


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What `ask` was given; None and empty mean: not given. `sampling` holds given fields only."""

    prompt: str | None = None
    images: tuple[Path, ...] = ()
    system: str | None = None
    thinking: bool | None = None
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    as_json: bool = False
    stats: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)
    greedy: bool = False
    model_dir: Path | None = None
    max_image_tokens: int | None = None
    threads: int | None = None


def ask_once(options: AskOptions, console: Console, load: Load = load_model) -> int:
    """Answer one question; the exit code. Raises Q35Error before anything is printed."""
    chosen_sampling(SamplingSettings(), options.sampling, greedy=options.greedy)
    prompt = read_prompt(options.prompt, sys.stdin.buffer if sys.stdin else None)
    for path in options.images:
        header(read_file(path), str(path))
    settings = load_settings()
    choice = choose_model(options.model_dir, settings, lambda: make_demo(console.note))
    status = StatusLine(console)
    status.show("loading the model")
    started = perf_counter()
    try:
        model = call_in_worker(lambda: load(choice, options.threads))
    finally:
        status.clear()
    load_ms = (perf_counter() - started) * 1000
    chat_settings = _chat_settings(options, settings, model.sampling)
    turn = _question(prompt, options, chat_settings, model.backend)
    renderer: Renderer = (
        JsonRenderer(console, load_ms) if options.as_json else StreamRenderer(console)
    )
    finished = answer(model.backend, [turn], chat_settings, renderer)
    if options.stats:
        for line in stats_lines(finished, load_ms):
            console.note(line)
    return INTERRUPTED if finished.reason == "cancelled" else 0


def _chat_settings(
    options: AskOptions, settings: Settings, defaults: SamplingSettings
) -> ChatSettings:
    return ChatSettings(
        sampling=chosen_sampling(defaults, options.sampling, greedy=options.greedy),
        system_prompt=options.system or "",
        thinking=settings.thinking if options.thinking is None else options.thinking,
        max_new_tokens=options.max_new_tokens,
        stop=options.stop,
        max_image_tokens=options.max_image_tokens or settings.max_image_tokens,
    )


def _question(
    prompt: str, options: AskOptions, settings: ChatSettings, backend: ChatBackend
) -> Turn:
    pictures = (backend.attach(path, settings.max_image_tokens) for path in options.images)
    return Turn("user", prompt, tuple(pictures))
