"""A bundle as a model that plans and answers prompts: the facade over everything in `chat`.

Graphs are opened by the `Runtime` that the caller gives, so that none is known here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from pathlib import Path

from q35chat.bundle.bundle import Bundle
from q35chat.chat.checkpoint import ChatFiles
from q35chat.chat.events import Event, PromptPlan
from q35chat.chat.model import Model
from q35chat.chat.prompt.kept import KeptStates, Pool
from q35chat.chat.prompt.pictures import SEES_NONE, ModelPictures
from q35chat.chat.prompt.reuse import DEFAULT_BUDGET, PrefixCache
from q35chat.chat.prompt.template import ConversationTemplate, Prompt
from q35chat.chat.service import ModelInfo
from q35chat.chat.turn.generate import TurnGenerator, plan_of
from q35chat.chat.turn.grammar import AnswerForm, Grammars
from q35chat.chat.turn.reading import read_ahead
from q35chat.chat.values import (
    Attachment,
    ChatSettings,
    SamplingSettings,
    Tools,
    Turn,
    TurnOptions,
)
from q35chat.engine.decoder import Decoder, OpenGraph, Runtime, TextModel
from q35chat.engine.encoder import NoGeometryError
from q35chat.engine.rules import Constraint
from q35chat.engine.session import GraphSession
from q35chat.errors import BundleError, CapacityError, Remedy, UsageError
from q35chat.user_input import Speculate

_SHORT = 16  # characters a slot that are left to the exact count


class ChatEngine:
    """One loaded bundle with the state of one sequence; a `ChatBackend`.

    One `run` at a time. `model` is what the meters name; `vocabulary` is the digest of the
    tokenizer's file: ids mean the same only where it is equal. `tokenizer` and `sampling_defaults`
    are the checkpoint's own.
    """

    def __init__(
        self, parts: Model, info: ModelInfo, vocabulary: str, sampling: SamplingSettings
    ) -> None:
        self._model = parts
        self.model = info
        self.tokenizer = parts.tokenizer
        self.vocabulary = vocabulary
        self._grammars = Grammars(parts.tokenizer, parts.stop_ids, parts.decoder.vocab_size)
        self.sampling_defaults = sampling
        self._form: AnswerForm | None = None

    @classmethod
    def open(
        cls,
        bundle: Bundle,
        runtime: Runtime,
        *,
        name: str | None = None,
        device: str = "CPU",
        is_demo: bool = False,
        snapshot_bytes: int = DEFAULT_BUDGET,
        speculate: Speculate = "auto",
        states: Pool | None = None,
    ) -> ChatEngine:
        """Load tokenizer and graphs; slow. `name`, by default its checkpoint's, and `device` are
        for display only. What `states` holds of the bundle is not read again.

        Raises BundleError for what does not fit together, RuntimeFailure from `runtime`.
        """
        manifest, folder = bundle.manifest, bundle.processor_dir
        facts = manifest.model
        if facts.experts and speculate == "auto":  # guesses are read with experts of their own
            speculate = "off"
        files = ChatFiles.read(folder, pictures=facts.image_token_id is not None)
        with ExitStack() as opened:  # closed again where one fails, to have the room to try again

            def open_graph(path: Path) -> GraphSession:
                graph = runtime.open_graph(path)
                opened.callback(graph.close)
                return graph

            there = "vision" in manifest.graphs
            vision = open_graph(bundle.graph_path("vision")) if there else None
            # last, so that its prefill is on a small device
            with_head = _wants_head(bundle, speculate)
            decoder = open_decoder(bundle, runtime, open_graph, with_head=with_head)
            pictures = _pictures(bundle, files, runtime, vision, decoder)
            opened.pop_all()
        cache, made_by = PrefixCache(decoder, snapshot_bytes), _digest(bundle, with_head)
        model = Model(
            tokenizer=files.tokenizer,
            template=ConversationTemplate(files.tokenizer, files.stop_ids, facts.image_token_id),
            pictures=pictures,
            decoder=decoder,
            cache=cache,
            stop_ids=files.stop_ids,
            image_token_id=facts.image_token_id,
            rounded=manifest.precision != "fp32",
            speculate=speculate,
            kept=KeptStates(states, made_by, decoder, cache) if states and made_by else None,
        )
        info = ModelInfo(
            name=name or manifest.source.name,
            target=manifest.target,
            precision=manifest.precision,
            device=device,
            capacity=decoder.capacity,
            is_demo=is_demo,
            kept=manifest.kept,
            pictures=pictures.seen,
            offers=files.tokenizer.offers,
        )
        vocabulary = manifest.files["processor/tokenizer.json"].sha256
        return cls(model, info, vocabulary, files.sampling)

    def close(self) -> None:
        """Free the graphs with all memory of theirs, and what was kept to be used again; further
        calls are errors."""
        self._model.decoder.close()
        self._model.pictures.close()
        self._model.cache.clear()

    def interrupt(self, *, leaving: bool = False) -> None:
        """End the making of a prompt, as `ChatBackend` says."""
        self._model.tokenizer.interrupt(leaving=leaving)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        return self._model.stop_ids

    def constraint(self, form: AnswerForm) -> Constraint:
        """A constraint of one answer to a form. Raises UsageError."""
        return self._grammars.constraint(form)

    def obeying(self, form: AnswerForm) -> ChatEngine:
        """The same model, whose answers all have a form. Raises UsageError."""
        self.constraint(form)
        same = copy(self)
        same._form = form
        return same

    @property
    def slots_used(self) -> int:
        """Slots that the state holds; during a run that of a moment."""
        return self._model.decoder.used

    def attach_data(self, data: bytes, name: str, max_tokens: int) -> Attachment:
        """Decode, check and measure a picture that is no file. Raises PictureError."""
        return self._model.pictures.attach_data(data, name, max_tokens)

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Load, check and measure a picture. Raises PictureError."""
        return self._model.pictures.attach(path, max_tokens)

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        """What `run` would read, for any thread. A question that is too long by far is refused
        without tokenising it."""
        return self.plan_prompt(self.prompt(turns, settings))

    def plan_prompt(self, prompt: Prompt) -> PromptPlan:
        """What `answer` would read, for any thread."""
        return plan_of(self._model, prompt)

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        """The events of a turn, computed as consumed, as `ChatBackend` says."""
        wanted = None if self._form is None else self.constraint(self._form)
        options = TurnOptions(constraint=wanted)
        return self.answer(self.prompt(turns, settings), settings, should_stop, options)

    def answer(
        self,
        prompt: Prompt,
        settings: ChatSettings,
        should_stop: Callable[[], bool],
        options: TurnOptions = TurnOptions(),  # noqa: B008  (a value)
    ) -> Iterator[Event]:
        """The events of a turn whose prompt is made already, as `run` has them."""
        return TurnGenerator(self._model, prompt, settings, should_stop, options).events()

    def read_ahead(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> None:
        """Read what any follow-up of `turns`, which end with an answer, begins with.

        Nothing is done where that takes more than reading the answer once more.
        """
        if self._model.decoder.reads_in_parts:
            prompt = self.prompt((*turns, Turn("user", "")), settings)
            read_ahead(self._model, prompt, should_stop)

    def keep(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings,
        chat: str,
        should_stop: Callable[[], bool],
        *,
        shared: bool = False,
    ) -> None:
        """Keep the state for a follow-up of `turns`, as `ChatBackend` says."""
        if self._model.kept is not None:
            prompt = self.prompt((*turns, Turn("user", "")), settings)
            self.keep_prompt(prompt, chat, should_stop, shared=shared)

    def keep_prompt(
        self, prompt: Prompt, chat: str, should_stop: Callable[[], bool], *, shared: bool = False
    ) -> None:
        """Keep what the state has of `prompt`, that of a follow-up, as `keep` does."""
        if self._model.kept is not None:
            ends = prompt.shared if shared else ()
            self._model.kept.keep(prompt.keys, chat, ends, should_stop)

    def text_prompt(self, text: str | Sequence[int]) -> Prompt:
        """A prompt of text alone, or of token ids: no template is around it. For any thread. Raises
        UsageError for what no text is, CapacityError for what is too long by far."""
        if isinstance(text, str):
            self.check_length(text)
            text = self.tokenizer.encode(text)
        rows = self._model.decoder.vocab_size
        wrong = [one for one in text if not 0 <= one < rows or one == self._model.image_token_id]
        if wrong or not text:
            raise UsageError(
                f"the token {wrong[0]} is none of a text: ids are less than {rows:,}"
                if wrong
                else "the prompt is empty: give at least one token"
            )
        return Prompt.of_text(text)

    def prompt(self, turns: Sequence[Turn], settings: ChatSettings, tools: Tools = ()) -> Prompt:
        """What the model reads of `turns` where it may call `tools`. For any thread. Raises
        CapacityError for a question that is too long by far, BundleError where the template
        refuses, PictureError."""
        if turns[-1].role == "user":
            self.check_length(turns[-1].text)
        if settings.system_prompt:
            turns = (Turn("system", settings.system_prompt), *turns)
        pictures = [
            self._model.pictures.place(attachment, settings.max_image_tokens)
            for turn in turns
            for attachment in turn.attachments
        ]
        prompt = self._model.template.prompt(
            turns,
            pictures,
            thinking=settings.thinking,
            effort=settings.reasoning_effort,
            preserve=settings.preserve_thinking,
            tools=tools,
        )
        self._check_ids(prompt)
        return prompt

    def _check_ids(self, prompt: Prompt) -> None:
        """Refuse a token that the model has no embedding for: its tokenizer is of another one."""
        last, rows = int(prompt.ids.max(initial=0)), self._model.decoder.vocab_size
        if last >= rows:
            raise BundleError(
                f"{self.tokenizer.piece(last)!r} in this chat has the id {last}, the model has "
                f"only {rows} rows of embeddings: leave it out, or export another checkpoint"
            )

    def check_length(self, text: str) -> None:
        """Raise CapacityError for a text of which even the fewest tokens have no place, without
        tokenising it."""
        capacity = self.model.capacity
        if len(text) <= capacity * _SHORT:
            return
        fewest = self._model.tokenizer.lower_bound(text)
        if fewest > capacity:
            raise CapacityError(
                f"prompt needs at least {fewest:,} slots, capacity {capacity:,}:",
                Remedy.SHORTEN,
            )


def open_decoder(
    bundle: Bundle, runtime: Runtime, open_graph: OpenGraph, *, with_head: bool = False
) -> Decoder:
    """The decoder of `bundle`, its graphs opened by `open_graph`; with the head for drafts where
    it is wanted."""
    facts = bundle.manifest.model
    model = TextModel(
        facts.image_token_id,
        facts.vocab_size,
        bundle.manifest.capacity or 0,
        with_head,
        facts.experts,
    )
    return runtime.decoder(lambda name: open_graph(bundle.graph_path(name)), model)


def _digest(bundle: Bundle, with_head: bool) -> str:
    """That of all files that make a state what it is; empty where one of a graph is not known."""
    files = bundle.manifest.files
    if not files.keys() >= set(bundle.manifest.graphs.values()):
        return ""
    listed = [with_head, sorted((name, entry.sha256) for name, entry in files.items())]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _wants_head(bundle: Bundle, speculate: Speculate) -> bool:
    """Raises BundleError where the head is asked for and not there."""
    there = "mtp" in bundle.manifest.graphs
    if speculate == "mtp" and not there:
        raise BundleError(f"{bundle.path} has no head for guessing tokens:", Remedy.HEAD_OR_AUTO)
    return there and speculate in ("mtp", "auto")


def _pictures(
    bundle: Bundle,
    files: ChatFiles,
    runtime: Runtime,
    vision: GraphSession | None,
    decoder: Decoder,
) -> ModelPictures:
    facts, rules = bundle.manifest.model, files.rules
    if rules is None or facts.image_token_id is None:
        return ModelPictures(None, 0, None, missing=SEES_NONE)
    rules.check(
        patch_size=facts.patch_size,
        temporal_patch_size=facts.temporal_patch_size,
        merge_size=facts.spatial_merge_size,
    )
    missing = ""
    if not files.takes_pictures(facts.image_token_id):
        missing = "this model's template takes no pictures"
    elif vision is None:
        missing = f"this bundle has no vision graph: {bundle.adding('vision')}"
    if missing or vision is None:
        return ModelPictures(rules, facts.position_grid_side, None, missing=missing)
    try:
        encoder = runtime.encoder(vision, facts.spatial_merge_size, decoder.image_width)
    except NoGeometryError as error:  # of other scripts; text needs no pictures
        vision.close()
        return ModelPictures(rules, facts.position_grid_side, None, missing=str(error))
    if encoder.width != decoder.image_width:
        raise BundleError(
            f"vision graph makes rows of {encoder.width} numbers, text graph takes "
            f"{decoder.image_width}: export both together"
        )
    return ModelPictures(rules, facts.position_grid_side, encoder)
