"""`q35chat ask`: one question, one answer, out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from q35chat.commands import options as opt
from q35chat.commands.console import Console, StatusLine
from q35chat.commands.failures import INTERRUPTED
from q35chat.commands.remote import check_endpoint
from q35chat.errors import StoreError, UsageError
from q35chat.processes import program

if TYPE_CHECKING:
    from q35chat.chat.backend import ChatBackend
    from q35chat.chat.conversation import Conversation
    from q35chat.chat.events import Event
    from q35chat.chat.values import ChatSettings, SamplingSettings
    from q35chat.commands.model import LoadedModel, ModelLoader
    from q35chat.settings import Settings
    from q35chat.store import Store


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen, in place of the checkpoint's own way."""

    temperature: opt.Temperature = None
    top_p: opt.TopP = None
    top_k: opt.TopK = None
    min_p: opt.MinP = None
    presence_penalty: opt.PresencePenalty = None
    repetition_penalty: opt.RepetitionPenalty = None
    seed: opt.Seed = None
    greedy: opt.Greedy = False

    def check(self) -> None:
        """Refuse an option that only matters without another one. Raises UsageError."""
        if not self.greedy and self.temperature != 0:
            return
        greedy, others = "--temperature 0", ["top_p", "top_k", "min_p"]
        if self.greedy:
            greedy, others = "--greedy", ["temperature", *others]
        for name in others:
            if getattr(self, name) is not None:
                option = name.replace("_", "-")
                raise UsageError(
                    f"{greedy} always takes the likeliest token; drop --{option} or it"
                )

    def over(self, defaults: SamplingSettings) -> SamplingSettings:
        """`defaults` with what was given in its place; `greedy` is temperature 0."""
        values: dict[str, Any] = asdict(self)
        greedy = values.pop("greedy")
        given = {name: value for name, value in values.items() if value is not None}
        if greedy:
            given["temperature"] = 0.0
        return replace(defaults, **given)


@dataclass(frozen=True, slots=True)
class AskOptions(opt.AnswererOptions):
    """What `ask` takes; None means: not given."""

    prompt: Annotated[
        str | None,
        typer.Argument(
            help="The question. Text that is piped in comes after it; without a question, or "
            "with -, that text is the question."
        ),
    ] = None
    images: opt.AskedImages = None
    files: opt.Files = None
    template: opt.Template = None
    system: opt.System = None
    persona: opt.Persona = None
    thinking: opt.Thinking = None
    thinking_budget: opt.ThinkingBudget = None
    reasoning_effort: opt.ReasoningEffort = None
    preserve_thinking: opt.PreserveThinking = None
    max_new_tokens: opt.MaxNewTokens = None
    stop: opt.Stop = None
    schema: Annotated[
        Path | None,
        typer.Option(
            parser=opt.path,
            metavar="<path>",
            help="Answer with JSON that obeys the JSON schema in this file.",
        ),
    ] = None
    grammar: Annotated[
        Path | None,
        typer.Option(
            parser=opt.path,
            metavar="<path>",
            help="Answer with a text of the grammar in this file, in Lark's notation.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    stats: Annotated[bool, typer.Option("--stats", help="Show timings on stderr.")] = False
    continues: opt.Continues = False
    session: opt.SessionOption = None
    keep: Annotated[
        bool,
        typer.Option(
            " /--no-save", help="Do not keep this question and its answer.", show_default=False
        ),
    ] = True
    sampling: SamplingOptions = SamplingOptions()


@opt.takes(AskOptions)
def ask(options: AskOptions) -> int:
    """Answer one question; the answer streams to stdout, everything else to stderr."""
    return ask_once(options, Console.standard())


def ask_once(options: AskOptions, console: Console, load: ModelLoader | None = None) -> int:
    """Answer one question; the exit code. Raises Q35Error before anything is printed."""
    from q35chat.commands.prompt_input import STDIN, piped_pictures

    pictures, stdin = options.images or [], sys.stdin.buffer if sys.stdin else None
    asks = options.template is not None if options.prompt is None else options.prompt != "-"
    if STDIN in pictures and not asks:
        raise UsageError(
            "-i - reads a picture from stdin; add the question, like "
            f'{program()} ask -i - "What is it?"'
        )
    with piped_pictures(pictures, stdin) as images:
        text = None if STDIN in pictures else stdin
        return _ask_once(replace(options, images=images), text, console, load)


def _ask_once(
    options: AskOptions, stdin: BinaryIO | None, console: Console, load: ModelLoader | None
) -> int:
    from q35chat.commands import model as models
    from q35chat.commands.answer_form import obeying, read_form
    from q35chat.commands.personas import check_persona
    from q35chat.commands.render import JsonRenderer, StreamRenderer, show_turn, stats_lines
    from q35chat.commands.streaming import call_in_worker
    from q35chat.settings import load_settings

    prompt = _checked_prompt(options, stdin, console)
    form = read_form(options.schema, options.grammar)
    store, kept_in = _place(options, console)
    settings = load_settings()
    check_persona(options.persona, settings)
    loader = models.loader(options, settings, console.note, load)
    started = perf_counter()
    with StatusLine(console).showing(options.awaited):
        model = call_in_worker(loader)
    load_ms = (perf_counter() - started) * 1000
    if form is not None:
        model = obeying(model, form)
    conversation = _conversation(store, kept_in, model, settings, options.persona)
    if store is not None and store.damaged_chat:
        console.note(store.damaged_chat)
    renderer = (
        JsonRenderer(console, load_ms, lambda: conversation.kept_as)
        if options.as_json
        else StreamRenderer(console)
    )
    try:
        events = _asked(conversation, prompt, options, model.backend)
        finished = show_turn(events, conversation.cancel, renderer)
    finally:
        if problem := conversation.flush():
            console.note(f"not all of this answer is kept: {problem}")
    if options.stats:
        for line in stats_lines(finished, load_ms, conversation.kept_as):
            console.note(line)
    console.out.flush()  # the answer is there; nobody waits for what the next one will not read
    conversation.keep_state()
    if finished.reason == "cancelled":
        return INTERRUPTED
    return 1 if problem else 0


def _checked_prompt(options: AskOptions, stdin: BinaryIO | None, console: Console) -> str:
    """The question with what is piped into `stdin`, once all that is given was found good. Raises
    UsageError, PictureError, FileError."""
    from q35chat.commands.prompt_input import checked_argument, checked_text, read_prompt
    from q35chat.vision.loading import header, read_file

    check_endpoint(options)
    options.sampling.check()
    opt.check_thinking(options.thinking, options.thinking_budget)
    for option, texts in (("--system", [options.system or ""]), ("--stop", options.stop or ())):
        for text in texts:
            checked_argument(text, option)
    from q35chat.settings.templates import named_template

    template = None if options.template is None else named_template(options.template)
    with StatusLine(console).showing("reading what is piped in"):
        prompt = read_prompt(options.prompt, stdin, optional=template is not None)
    if template is not None:
        prompt = checked_text(template.filled(prompt).encode(), "the prompt with its template")
    for path in options.images or ():
        header(read_file(path), path.name)
    if options.files:
        from q35chat.chat.text_files import read_text_file, with_files

        with StatusLine(console).showing("reading the files"):
            return with_files([read_text_file(path) for path in options.files], prompt)
    return prompt


def _place(options: AskOptions, console: Console) -> tuple[Store | None, str | None]:
    """The store that keeps the turn, or None; and the conversation that it goes on in, or None.

    A new turn is answered without being kept where the store cannot be opened, and a note says
    so. Raises StoreError where a conversation was asked for and is not there, UsageError where
    the options contradict each other.
    """
    wanted = options.session is not None or options.continues
    if wanted and options.persona is not None:
        raise UsageError("--persona is for a new chat; leave out --continue and --session or it")
    opt.check_session(options.session, latest=options.continues)
    if not options.keep:
        if wanted:
            raise UsageError("--no-save keeps nothing; leave out --continue and --session or it")
        return None, None
    from q35chat.store import Store

    try:
        store = Store()
    except StoreError as error:
        if wanted:
            raise
        console.note(f"this answer is not kept: {error}")
        return None, None
    if store.message:
        console.note(store.message)
    if options.session is not None:
        return store, store.resolve(options.session)
    return store, store.latest() if options.continues else None


def _conversation(
    store: Store | None,
    session: str | None,
    model: LoadedModel,
    settings: Settings,
    persona: str | None,
) -> Conversation:
    """The conversation `session` with its own settings, or a new one with the user's."""
    from q35chat.chat.workspace import Workspace, unkept
    from q35chat.commands.personas import new_chat

    fresh = new_chat(settings, model.sampling, persona)
    if store is None:
        return unkept(model.backend, fresh)
    workspace = Workspace(store, lambda: (model.backend, fresh), reads_ahead=False)
    workspace.load()
    return workspace.pick(session)


def _asked(
    conversation: Conversation, prompt: str, options: AskOptions, backend: ChatBackend
) -> Iterator[Event]:
    """The events of the turn; the conversation keeps of its options the system prompt, and all
    about thinking. Where nothing can be written the answer is not kept, and a notice says so."""
    from q35chat.chat.events import Notice
    from q35chat.chat.history.records import StoreWriteError

    before = conversation.settings()
    opt.check_offered(backend.model.offers, options.reasoning_effort, options.preserve_thinking)
    used = _chosen(options, before)
    pictures = [backend.attach(path, used.max_image_tokens) for path in options.images or ()]
    events = conversation.send(prompt, pictures, settings=used)
    try:
        first = next(events)
    except StoreWriteError as error:
        yield Notice(f"this answer is not kept: {error}")
        conversation.forgo_store()
        events = conversation.send(prompt, pictures, settings=used)
        first = next(events)
    settings = replace(
        before.with_thinking(used.thinking, used.thinking_budget),
        system_prompt=used.system_prompt,
        reasoning_effort=used.reasoning_effort,
        preserve_thinking=used.preserve_thinking,
    )
    if settings != conversation.settings():
        conversation.change_settings(settings)
    yield first
    yield from events


def _chosen(options: AskOptions, base: ChatSettings) -> ChatSettings:
    """`base` under what was given for this turn."""
    given: dict[str, Any] = {
        "system_prompt": options.system,
        "thinking": True if options.thinking_budget is not None else options.thinking,
        "thinking_budget": options.thinking_budget,
        "reasoning_effort": options.reasoning_effort,
        "preserve_thinking": options.preserve_thinking,
        "max_new_tokens": options.max_new_tokens,
        "stop": tuple(options.stop or ()) or None,
        "max_image_tokens": options.max_image_tokens,
    }
    return replace(
        base,
        sampling=options.sampling.over(base.sampling),
        **{name: value for name, value in given.items() if value is not None},
    )
