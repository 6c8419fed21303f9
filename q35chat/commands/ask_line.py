"""The command line of `q35chat ask`: arguments in, a call out. Imports nothing heavy."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console
from q35chat.commands.npu import NpuOptions


def ask(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="The question. Text that is piped in comes after it; without a question, or "
            "with -, that text is the question."
        ),
    ] = None,
    image: opt.Images = None,
    system: opt.System = None,
    thinking: opt.Thinking = None,
    thinking_budget: opt.ThinkingBudget = None,
    max_new_tokens: opt.MaxNewTokens = None,
    stop: opt.Stop = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show timings on stderr.")] = False,
    continues: opt.Continues = False,
    session: opt.Session = None,
    keep: Annotated[
        bool,
        typer.Option(
            " /--no-save",
            help="Do not keep this question and its answer.",
            show_default=False,
        ),
    ] = True,
    temperature: opt.Temperature = None,
    top_p: opt.TopP = None,
    top_k: opt.TopK = None,
    min_p: opt.MinP = None,
    presence_penalty: opt.PresencePenalty = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    seed: opt.Seed = None,
    greedy: opt.Greedy = False,
    model_dir: opt.ModelDir = None,
    max_image_tokens: opt.MaxImageTokens = None,
    threads: opt.Threads = None,
    snapshot_mib: opt.SnapshotMib = opt.DEFAULT_SNAPSHOT_MIB,
    speculate: opt.Speculate = None,
    device_id: opt.DeviceId = 0,
    residency: opt.Residency = "auto",
    host_states: opt.HostStates = False,
    _debug: opt.Debug = False,
) -> int:
    """Answer one question; the answer streams to stdout, everything else to stderr."""
    from q35chat.commands.ask import AskOptions, ask_once  # noqa: PLC0415

    asked = AskOptions(
        prompt=prompt,
        images=tuple(image or ()),
        system=system,
        thinking=thinking,
        thinking_budget=thinking_budget,
        max_new_tokens=max_new_tokens,
        stop=tuple(stop or ()),
        as_json=as_json,
        stats=stats,
        sampling=_given(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            presence_penalty=presence_penalty,
            repetition_penalty=repetition_penalty,
            seed=seed,
        ),
        greedy=greedy,
        model_dir=model_dir,
        max_image_tokens=max_image_tokens,
        threads=threads,
        session=session,
        continues=continues,
        keep=keep,
        npu=NpuOptions(device_id, residency, host_states),
        snapshot_mib=snapshot_mib,
        speculate=speculate,
    )
    return ask_once(asked, Console.standard())


def _given(**values: Any) -> dict[str, Any]:
    """The options that were given, by name."""
    return {name: value for name, value in values.items() if value is not None}
