"""The options that commands share, how a command takes them, and which contradict each other.

A command's options are the fields of a dataclass; `takes` makes its command line of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_type_hints

import typer

from q35chat import user_input
from q35chat.ascend.options import DEFAULT_NPU, NpuOptions
from q35chat.errors import UsageError

if TYPE_CHECKING:
    from q35chat.chat.values import TemplateOffers


def _turn_on_debug(context: typer.Context, value: bool) -> bool:
    if value and context.obj is not None:
        context.obj["debug"] = True
    return value


def _finite(value: float | None) -> float | None:
    """NaN lies between no bounds and outside none."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def path(value: object) -> Path:
    """Reads an option or an argument that is a path; typer shows this name for its kind."""
    return user_input.typed_path(str(value))


def _picture(value: object) -> Path:
    return user_input.typed_picture(str(value))


def _range(option: str) -> dict[str, float]:
    low, high = user_input.SAMPLING_RANGES[option]
    return {"min": low, "max": high}


CommandFunction = Callable[..., int]
Options = TypeVar("Options")

DEFAULT_SNAPSHOT_MIB = 512
DEFAULT_STATE_CACHE_MIB = 2048

_model = partial(typer.Option, rich_help_panel="Model")
_server = partial(typer.Option, rich_help_panel="Server elsewhere")
_npu = partial(typer.Option, rich_help_panel="NPU (bundles for ascend-310p)")
_sampling = partial(
    typer.Option, rich_help_panel="Sampling (defaults: the model's generation_config.json)"
)
_number = partial(_sampling, callback=_finite)
_pictures = partial(typer.Option, "--image", "-i", parser=_picture, metavar="<path>")

Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show a traceback for a failure.", callback=_turn_on_debug, is_eager=True
    ),
]
ModelDir = Annotated[
    Path | None,
    _model(
        "--model-dir",
        "-m",
        parser=path,
        help="The bundle to use: a folder, or a name of `models list`. Default: out/ where that is "
        "one, else the demo.",
    ),
]
Endpoint = Annotated[
    str | None,
    _server(
        "--endpoint",
        metavar="URL|NAME",
        help="Ask this server instead of a bundle, by OpenAI's protocol: http://HOST:8000/v1, or "
        "the name of an \\[endpoint.NAME] in the settings. What you write is sent there.",
    ),
]
RemoteModel = Annotated[
    str | None,
    _server("--model", metavar="NAME", help="The server's model. Default: its only one."),
]
Threads = Annotated[
    int | None,
    _model(min=1, max=1024, help="CPU threads. Default: the CPUs this process may really use."),
]
MaxImageTokens = Annotated[
    int | None,
    _model(
        min=1,
        help="The most tokens a picture may take; larger ones are scaled down. Default: 1024.",
    ),
]
SnapshotMib = Annotated[
    int,
    _model(min=0, help="Memory in MiB for going back to earlier turns without reading them again."),
]
StateCacheMib = Annotated[
    int,
    _model(
        min=0,
        help="Disk space in MiB for going on in chats without reading them again; 0 for none.",
    ),
]
Speculate = Annotated[
    user_input.Speculate | None,
    _model(
        help="Guess the next tokens and compute several at once, for the same answers sooner: from "
        "what was said (lookup), by the model's own head (mtp; export --mtp). Default: auto, where "
        "it wins."
    ),
]
DeviceId = Annotated[int, _npu(min=0, help="The chip to use.")]
Residency = Annotated[
    Literal["auto", "both", "swap", "one"],
    _npu(
        help="Keep prefill and decode on the chip, load each when it is its turn, or have prefill "
        "decode, too (export --one-graph)."
    ),
]
HostStates = Annotated[
    bool,
    _npu(
        "--host-state-roundtrip",
        help="Move all states through the host at every step: slow, for comparison.",
    ),
]
Images = Annotated[
    list[Path] | None, _pictures(help="A picture for the question; repeat for more.")
]
AskedImages = Annotated[
    list[Path] | None,
    _pictures(help="A picture for the question, - for one on stdin; repeat for more."),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        parser=path,
        metavar="<path>",
        help="A text or PDF file whose text goes before the question; repeat for more.",
    ),
]
SessionOption = Annotated[
    str | None, typer.Option(help="Open this chat: its id, or the beginning of it.")
]
Continues = Annotated[bool, typer.Option("--continue", "-c", help="Go on in the latest chat.")]
FirstPrompt = Annotated[
    str,
    typer.Option("--prompt", help="Put this text into the composer; with --plain, ask it first."),
]
Pictures = Annotated[
    user_input.GraphicsPreference | None,
    typer.Option(
        help="How to show pictures: terminal graphics, half blocks, or not at all. "
        "Default: the best that the terminal is known to do."
    ),
]
NoImages = Annotated[bool, typer.Option("--no-images", help="The same as --pictures none.")]
System = Annotated[str | None, typer.Option(help="Instructions before the chat.")]
Template = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Ask what this file of the templates folder says, with the question for its $input.",
    ),
]
Persona = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Begin with this persona of the settings: its system prompt, sampling and thinking.",
    ),
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The most tokens of the answer; reasoning is extra. Default: up to the capacity.",
    ),
]
ThinkingBudget = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Let the model reason, with at most so many tokens; then the answer comes. "
        "Default: no limit.",
    ),
]
Thinking = Annotated[
    bool | None,
    typer.Option("--thinking/--no-thinking", help="Whether the model reasons before it answers."),
]
ReasoningEffort = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="How hard the model thinks, where its chat template has words for it.",
    ),
]
PreserveThinking = Annotated[
    bool | None,
    typer.Option(
        "--preserve-thinking/--no-preserve-thinking",
        help="Whether the reasoning of earlier answers stays in the prompt, where the chat "
        "template lets one choose.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(help="End the answer before this text; repeat for more."),
]
Temperature = Annotated[float | None, _number(**_range("temperature"))]
TopP = Annotated[float | None, _number(**_range("top_p"))]
TopK = Annotated[int | None, _sampling(**_range("top_k"))]
MinP = Annotated[float | None, _number(**_range("min_p"))]
PresencePenalty = Annotated[float | None, _number(**_range("presence_penalty"))]
RepetitionPenalty = Annotated[float | None, _number(**_range("repetition_penalty"))]
Seed = Annotated[int | None, _sampling(**_range("seed"), help="Repeat a run exactly.")]
Greedy = Annotated[bool, _sampling("--greedy", help="Always the likeliest token.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which model is asked and how it runs; None means: not given."""

    model_dir: ModelDir = None
    max_image_tokens: MaxImageTokens = None
    threads: Threads = None
    snapshot_mib: SnapshotMib = DEFAULT_SNAPSHOT_MIB
    state_cache_mib: StateCacheMib = DEFAULT_STATE_CACHE_MIB
    speculate: Speculate = None
    npu: NpuOptions = DEFAULT_NPU


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswererOptions(ModelOptions):
    """Who answers: a bundle on this machine, or the server `endpoint` with its `model`."""

    endpoint: Endpoint = None
    model: RemoteModel = None

    @property
    def awaited(self) -> str:
        """What is done until the model is there."""
        return "loading the model" if self.endpoint is None else "asking the server"


_NPU_OPTIONS = {"device_id": DeviceId, "residency": Residency, "host_state_roundtrip": HostStates}


def takes(options: type[Options]) -> Callable[[Callable[[Options], int]], CommandFunction]:
    """Make a command of a function of `options`: an option for each field, and --debug."""

    def declare(function: Callable[[Options], int]) -> CommandFunction:
        def command(**given: Any) -> int:
            return function(_filled(options, given))

        debug = Parameter("_debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug)
        cast("Any", command).__signature__ = Signature([*_parameters(options), debug])
        command.__doc__ = function.__doc__
        return command

    return declare


def _parameters(options: type[Any]) -> Iterator[Parameter]:
    """A parameter for each field, those that an options class takes over at the end; those of a
    dataclass within it stand in its place, those of `NpuOptions`, which knows no command line, with
    their options here."""
    types: dict[str, Any] = get_type_hints(options, include_extras=True)
    for field in sorted(fields(options), key=lambda field: bool(field.kw_only)):
        kind = types[field.name]
        if hasattr(kind, "__dataclass_fields__"):
            yield from _parameters(kind)
        else:
            yield Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=_NPU_OPTIONS.get(field.name, kind),
            )


def _filled(options: type[Options], given: dict[str, Any]) -> Options:
    """The dataclass whose fields, and theirs, are `given` by name."""
    types: dict[str, Any] = get_type_hints(options)
    values = {
        name: _filled(kind, given) if hasattr(kind, "__dataclass_fields__") else given[name]
        for name, kind in types.items()
    }
    return options(**values)


def with_options_of(command: CommandFunction) -> Callable[[CommandFunction], CommandFunction]:
    """Give a function the options of `command` in place of its own `**options`."""

    def declare(function: CommandFunction) -> CommandFunction:
        own = signature(function, eval_str=True).parameters.values()
        taken = signature(command, eval_str=True).parameters.values()
        kept = [one for one in own if one.kind is not Parameter.VAR_KEYWORD]
        cast("Any", function).__signature__ = Signature(
            [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*kept, *taken)]
        )
        return function

    return declare


def given_options(context: typer.Context) -> list[str]:
    """The parameters that the command line names, whatever their values."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]


def check_thinking(thinking: bool | None, budget: int | None) -> None:
    """Refuse a budget for reasoning that is switched off. Raises UsageError."""
    if thinking is False and budget is not None:
        raise UsageError("--no-thinking leaves no reasoning to limit; drop it or --thinking-budget")


def check_offered(offers: TemplateOffers, effort: str | None, preserve: bool | None) -> None:
    """Refuse what the template of the model does not offer. Raises UsageError."""
    if effort is not None and effort not in offers.efforts:
        known = ", ".join(offers.efforts)
        raise UsageError(
            f"--reasoning-effort must be one of {known}, found {effort!r}"
            if known
            else "--reasoning-effort: this model's template has no words for effort; drop it"
        )
    if preserve is not None and not offers.preserves:
        given = "--preserve-thinking" if preserve else "--no-preserve-thinking"
        raise UsageError(f"{given}: this model's template leaves no choice; drop it")


def check_session(session: str | None, *, latest: bool) -> None:
    """Refuse to open two chats at once. Raises UsageError."""
    if session is not None and latest:
        raise UsageError("--continue is the latest chat, --session another; give one")
