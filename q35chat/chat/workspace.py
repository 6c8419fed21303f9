"""The workspace: all conversations over one loaded model and one store.

The model is loaded by a function that the composing side gives; the store works without it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from q35chat.chat.backend import ChatBackend
from q35chat.chat.comparison import Comparison
from q35chat.chat.conversation import Conversation
from q35chat.chat.events import Event
from q35chat.chat.history.journal import Journal, untitled
from q35chat.chat.history.records import Archive, new_id
from q35chat.chat.prompt.tokenizer_process import PROCESS
from q35chat.chat.service import ListedConversation, ModelEntry, ModelInfo
from q35chat.chat.text_files import split_files
from q35chat.chat.turn.lock import StoppableTurn, TurnLock
from q35chat.chat.values import ChatSettings, Persona, SamplingSettings
from q35chat.errors import Option, StoreError, UsageError

CONTINUED = " (continued)"
LEAVING_S: Final = 0.8
_MOST_QUESTIONS: Final = 5_000
LoadModel = Callable[[], tuple[ChatBackend, ChatSettings]]
LoadBundle = Callable[[Path], tuple[ChatBackend, ChatSettings]]

_log = logging.getLogger(__name__)


class Workspace:
    """Conversations in `store`, answered by the model and with the settings that `load` gives.

    `load_bundle` loads another model in its place; `load_beside` loads one beside it, for one
    answer. `personas` gives the ways to go on in a chat,
    the first of them as chats begin without one; `models` lists what `load_bundle` could load, in a
    worker thread. `remote`: the model that `load` gives is a server's.
    `reads_ahead`: after an answer the model gets ready for a follow-up and its state is kept, in a
    thread of its own; the state of another conversation is kept and brought back alike. `keep`
    keeps how all new chats are to begin, for later runs too, and gives how they do.
    """

    def __init__(
        self,
        store: Archive,
        load: LoadModel,
        load_bundle: LoadBundle | None = None,
        *,
        reads_ahead: bool = True,
        personas: Callable[[], Sequence[Persona]] = tuple,
        models: Callable[[], Sequence[ModelEntry]] = tuple,
        remote: bool = False,
        keep: Callable[[ChatSettings], ChatSettings] = lambda settings: settings,
        load_beside: LoadBundle | None = None,
    ) -> None:
        self.store = store
        self._load = load
        self._load_bundle = load_bundle
        self._load_beside = load_beside or load_bundle
        self._reads_ahead = reads_ahead
        self.personas = personas
        self.models = models
        self.remote = remote
        self._keep = keep
        self._loaded: tuple[ChatBackend, ChatSettings] | None = None
        self._own_samplings: list[SamplingSettings] = []
        self._turn_lock = TurnLock()
        self._lock = threading.Lock()
        self._journals: weakref.WeakSet[Journal] = weakref.WeakSet()
        self._open: weakref.WeakValueDictionary[str, Conversation] = weakref.WeakValueDictionary()
        self._front: Conversation | None = None
        self._left_at: float | None = None

    def load(self) -> None:
        """Load the model; slow, for a worker thread. Raises Q35Error."""
        try:
            self.store.sweep()
        except StoreError as error:  # the next start tries again
            _log.warning("what a killed process left stays: %s", error)
        if self._loaded is None:
            self._loaded = self._load()

    def restart(self) -> None:
        """Free the model and load it again; slow. Raises Q35Error, and then there is none."""
        loaded, self._loaded = self._loaded, None
        self._free(loaded)
        del loaded
        self.load()

    def use(self, folder: Path) -> None:
        """Load the bundle in `folder`, then free the present model; slow.

        Raises Q35Error, and then the present model stays.
        """
        if self._load_bundle is None:
            raise _one_model_only()
        load = partial(self._load_bundle, folder)
        fresh = load()
        former, self._loaded, self._load = self._loaded, fresh, load
        self._free(former)

    def compare(self, conversation: Conversation, folder: Path) -> Comparison:
        """The last question of a conversation, to be answered by the model in `folder`, too.

        Raises UsageError where there is no question, or no other model.
        """
        load_beside, own = self._load_beside, self._need_loaded()[1].sampling
        if load_beside is None:
            raise _one_model_only()

        def load(settings: ChatSettings) -> tuple[ChatBackend, ChatSettings]:
            backend, defaults = load_beside(folder)
            if settings.sampling == own:
                settings = replace(settings, sampling=defaults.sampling)
            return backend, settings

        return conversation.compared(load)

    def reopen(self, conversation: Conversation) -> Conversation:
        """The same conversation over the model as it is loaded now, stored or not.

        Sampling that was another model's own becomes this one's own.
        """
        known = self._same(conversation)
        backend, defaults = self._need_loaded()
        if known.backend is backend:
            return known
        fresh = known.over(backend)
        settings, own = fresh.settings(), defaults.sampling
        if settings.sampling in self._own_samplings and settings.sampling != own:
            fresh.change_settings(replace(settings, sampling=own))
        fresh.count_slots()
        with self._lock:
            self._open[fresh.id] = fresh
        return self._in_front(fresh)

    def _free(self, loaded: tuple[ChatBackend, ChatSettings] | None) -> None:
        if loaded is None:
            return
        self._own_samplings.append(loaded[1].sampling)
        self._keep_front(loaded[0])
        try:
            with self._turn_lock.passing(StoppableTurn()):
                loaded[0].close()
        except Exception:  # noqa: BLE001 - a runtime that died may not even close
            _log.exception("a model could not be freed")

    @property
    def model(self) -> ModelInfo:
        """The loaded model. Raises UsageError before `load`."""
        return self._need_loaded()[0].model

    @property
    def message(self) -> str:
        """What the user should know about the store, if anything."""
        return self.store.message

    def begin_as(self, settings: ChatSettings) -> bool:
        """Have all new chats begin with `settings`, in later runs too; whether they do, or as their
        persona says. Raises UsageError where that cannot be kept."""
        begun = self._keep(settings)
        self._loaded = self._need_loaded()[0], begun
        return begun == replace(settings, stop=begun.stop, loop_guard=begun.loop_guard)

    def new(self) -> Conversation:
        """An empty conversation; it is stored with its first question."""
        return self._opened(Journal(self.store, untitled(new_id(), self._need_loaded()[1])))

    def new_from_summary(self, conversation: Conversation) -> tuple[Conversation, Iterator[Event]]:
        """A new conversation, and the events of the model writing its summary of the old one.

        It is stored with its summary when the events are consumed to the end.
        """
        old = self._same(conversation)
        fresh = self.new()

        def begin(summary: str) -> None:
            title = old.title.removesuffix(CONTINUED) + CONTINUED
            fresh.begin(title, old.settings(), summary)

        def events() -> Iterator[Event]:
            yield from old.summarise(begin)
            self._in_front(fresh)

        return fresh, events()

    def open(self, conversation_id: str) -> Conversation:
        """A stored conversation, by its id or the beginning of it. Raises StoreError."""
        ident = self.store.resolve(conversation_id)
        with self._lock:
            known = self._open.get(ident)
        if known is not None:
            known.look_again()
            return self._in_front(self.reopen(known))
        record, turns = self.store.load(ident)
        return self._opened(Journal(self.store, record, turns, stored=True))

    def pick(self, conversation_id: str | None = None, latest: bool = False) -> Conversation:
        """The conversation with this id, the latest one, or a new one. Raises Q35Error."""
        if conversation_id is not None:
            return self.open(conversation_id)
        return self.open(self.store.latest()) if latest else self.new()

    def listed(self, query: str = "") -> Sequence[ListedConversation]:
        """Conversations, latest first; with a query those that hold all its words."""
        return self.store.listed(query)

    def questions(self) -> Sequence[str]:
        """Questions of all chats without the files before them, each once, the latest first."""
        asked = (split_files(text)[1] for text in self.store.questions(_MOST_QUESTIONS))
        return tuple(dict.fromkeys(text for text in asked if text))

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation another title. Raises StoreError if unknown."""
        title = " ".join(title.split())
        if not title:
            raise UsageError("A title needs at least one character.")
        self.store.rename(conversation_id, title)
        with self._lock:
            known = self._open.get(conversation_id)
        if known is not None:
            known.retitle(title)

    def pin(self, conversation_id: str, pinned: bool) -> None:
        """Say whether a conversation stays at the top of lists. Raises StoreError if unknown."""
        self.store.pin(conversation_id, pinned)

    def tag(self, conversation_id: str, words: str) -> None:
        """Give a conversation these words as tags and no others. Raises StoreError if unknown."""
        self.store.tag(conversation_id, tags_of(words))

    def trash(self, conversation_id: str) -> None:
        """Show a conversation no more; until it is deleted, at the latest at the next start, it can
        be brought back. Raises StoreError, also while an answer is written in it."""
        self.store.trash(conversation_id)

    def restore(self, conversation_id: str) -> None:
        """Bring back a conversation that was to be deleted. Raises StoreError if it is gone."""
        self.store.restore(conversation_id)

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation and the pictures that no other one shows. Raises StoreError."""
        self.store.delete(conversation_id)
        with self._lock:
            known = self._open.pop(conversation_id, None)
        if known is not None and known is self._front:
            self._front = None

    def export_markdown(self, conversation_id: str, folder: Path) -> Path:
        """Write the branch being read as Markdown with its pictures beside it."""
        return self.store.export_markdown(conversation_id, folder)

    def leave(self) -> None:
        """Let nobody wait for a prompt any more, nor for the model's tokenizer to be read: the
        program is about to leave."""
        self._left_at = time.monotonic()
        if self._loaded is not None:
            self._loaded[0].interrupt(leaving=True)
        else:
            PROCESS.interrupt()

    def stop_idle(self) -> None:
        """Write what is not written yet, and end what the model does between two turns: the
        program is about to leave."""
        for journal in list(self._journals):
            if problem := journal.flush():
                _log.warning("chat %s is not kept whole: %s", journal.record.id, problem)
        self._turn_lock.stop_idle()
        if self._reads_ahead and self._loaded is not None:
            self._keep_front(self._loaded[0])

    def stop_idle_soon(self) -> None:
        """`stop_idle`, but give it up where the program would take `LEAVING_S` to leave: a step of
        a model may never end. Then its thread is still there."""
        until = (self._left_at or time.monotonic()) + LEAVING_S
        thread = threading.Thread(target=self.stop_idle, name="q35chat-leaving", daemon=True)
        thread.start()
        thread.join(max(0.0, until - time.monotonic()))

    def wait_idle(self) -> None:
        """Wait until the model has got ready for a follow-up, and all is written and counted."""
        self._turn_lock.wait_idle()
        for conversation in list(self._open.values()):
            conversation.flush()

    def _opened(self, journal: Journal) -> Conversation:
        with self._lock:
            self._journals.add(journal)
            conversation = Conversation(
                self._need_loaded()[0], journal, self._turn_lock, reads_ahead=self._reads_ahead
            )
            conversation = self._open.setdefault(conversation.id, conversation)
        conversation.count_slots()
        return self._in_front(conversation)

    def _in_front(self, conversation: Conversation) -> Conversation:
        """`conversation` is the one that is looked at from now on: in the background the state of
        the one before it is kept, then its own brought back."""
        before, self._front = self._front, conversation

        def switch(stop: threading.Event) -> None:
            if before is not None and before is not conversation:
                before.keep_state()
            conversation.settle(stop)

        if self._reads_ahead:
            self._turn_lock.when_idle(switch)
        return conversation

    def _keep_front(self, backend: ChatBackend) -> None:
        """Keep the state of the conversation that is looked at, unless it is not `backend`'s or an
        answer is still computed."""
        front = self._front
        try:
            if front is not None and front.backend is backend:
                with self._turn_lock.passing(StoppableTurn()):
                    front.keep_state()
        except Exception:  # noqa: BLE001 - a runtime that died has no state
            _log.info("the state of a chat is not kept", exc_info=True)

    def _same(self, conversation: Conversation) -> Conversation:
        return self._open.get(conversation.id) or conversation

    def _need_loaded(self) -> tuple[ChatBackend, ChatSettings]:
        """The model and its own settings. Raises UsageError before `load`."""
        if self._loaded is None:
            raise UsageError("The model is not loaded yet. Wait for it, then try again.")
        return self._loaded


def _one_model_only() -> UsageError:
    return UsageError(f"This chat has one model only. Start another one with {Option.MODEL_DIR}.")


def tags_of(words: str) -> tuple[str, ...]:
    """Tags, each with its sign and once: `work, #tides` is `#work`, `#tides`."""
    bare = (word.strip("#") for word in words.replace(",", " ").split())
    return tuple(dict.fromkeys(f"#{word}" for word in bare if word))


def unkept(backend: ChatBackend, settings: ChatSettings) -> Conversation:
    """An empty conversation in memory alone."""
    journal = Journal(None, untitled(new_id(), settings))
    return Conversation(backend, journal, TurnLock(), reads_ahead=False)
