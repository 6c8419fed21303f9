"""What a user does in a conversation, as values, and what must hold after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path

from hypothesis import strategies as st
from PIL import Image

from q35chat.chat.backend import ChatBackend
from q35chat.chat.events import Event, Finished, PromptPlan, Token
from q35chat.chat.service import ModelInfo, Step
from q35chat.chat.values import Attachment, ChatSettings, Turn
from q35chat.chat.workspace import Workspace
from q35chat.errors import CapacityError, RuntimeFailure, UsageError
from q35chat.store import Store, TurnRecord

KINDS = (
    *("send", "picture", "send and stop", "send and leave", "send and die", "continue"),
    *("regenerate", "regenerate earlier", "edit", "continue and stop", "drop", "branch"),
    *("reopen", "settings", "summary"),
)
COLORS = ("red", "blue", "green")


@dataclass(frozen=True)
class Action:
    """What is done, on which turn, and after how many tokens it is cut short."""

    kind: str
    number: int
    cut: int
    text: str


PIECES = [*"ab é中🐈\n\x00\x1b%_'\"", "<|im_end|>", "<think>", "</think>", "word "]
ACTIONS = st.builds(
    Action,
    st.sampled_from(KINDS),
    st.integers(0, 3),
    st.integers(0, 9),
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
)


class WatchedBackend:
    """Passes everything on, keeps what was asked, and dies when it is told to."""

    def __init__(self, inner: ChatBackend) -> None:
        self._inner = inner
        self.asked: list[tuple[Turn, ...]] = []
        self.dies_after: int | None = None
        self.ahead_parts = 0

    @property
    def model(self) -> ModelInfo:
        return self._inner.model

    @property
    def vocabulary(self) -> str:
        return self._inner.vocabulary

    def close(self) -> None:
        self._inner.close()

    def interrupt(self, *, leaving: bool = False) -> None:
        self._inner.interrupt(leaving=leaving)

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        return self._inner.attach(path, max_tokens)

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        return self._inner.plan(turns, settings)

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        tokens = 0
        for event in self._inner.run(turns, settings, should_stop):
            if isinstance(event, PromptPlan):
                self.asked.append(tuple(turns))
            tokens += isinstance(event, Token)
            if self.dies_after is not None and tokens > self.dies_after:
                raise RuntimeFailure("The runtime died.")
            yield event

    def read_ahead(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> None:
        """Stops after `ahead_parts` parts, so that a test can be repeated."""
        asked = count()
        self._inner.read_ahead(turns, settings, lambda: next(asked) >= self.ahead_parts)

    def keep(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings,
        chat: str,
        should_stop: Callable[[], bool],
        *,
        shared: bool = False,
    ) -> None:
        self._inner.keep(turns, settings, chat, should_stop, shared=shared)


class User:
    """Does actions in one conversation, and checks it after each."""

    def __init__(self, folder: Path, backend: ChatBackend, settings: ChatSettings) -> None:
        self._folder = folder
        self._backend = WatchedBackend(backend)
        self._settings = settings
        self._store = Store(folder / "data")
        self._workspace = self._opened(self._store)
        self._chat = self._workspace.new()
        self._ever: dict[str, TurnRecord] = {}

    def do(self, action: Action) -> None:
        """Do it, or be told in one line why not."""
        asked = len(self._backend.asked)
        self._backend.ahead_parts = action.number
        with suppress(UsageError, CapacityError, RuntimeFailure, IndexError):
            self._perform(action)
        self._workspace.wait_idle()
        self._backend.dies_after = None
        if len(self._backend.asked) > asked and action.kind != "summary":
            self._check_prompt()
        if self._chat.steps or self._chat.summary:
            self._check_store()

    def _perform(self, action: Action) -> None:
        match action.kind:
            case "send":
                list(self._chat.send(action.text))
            case "picture":
                picture = self._chat.attach(self._picture_file(COLORS[action.cut % 3]))
                list(self._chat.send(action.text, [picture]))
            case "send and stop":
                self._stopped(self._chat.send(action.text), action.cut)
            case "send and leave":
                _left(self._chat.send(action.text), action.cut)
            case "send and die":
                self._backend.dies_after = action.cut
                list(self._chat.send(action.text))
            case _:
                self._go_on(action)

    def _go_on(self, action: Action) -> None:
        match action.kind:
            case "continue":
                self._stopped(self._chat.send(action.text), action.cut)
                list(self._chat.continue_answer())
            case "continue and stop":
                self._stopped(self._chat.continue_answer(), action.cut)
            case "regenerate":
                list(self._chat.regenerate())
            case "regenerate earlier":
                list(self._chat.regenerate(self._step(action).id))
            case "edit":
                step = self._step(action)
                list(self._chat.edit(step.id, action.text, step.turn.attachments))
            case _:
                self._arrange(action)

    def _arrange(self, action: Action) -> None:
        match action.kind:
            case "drop":
                self._chat.plan_drop(action.number % 3)
                self._chat.drop_oldest(action.number % 3)
            case "branch":
                self._chat.choose_branch(action.cut % self._chat.steps[-1].branches)
            case "reopen":
                self._reopen()
            case "settings":
                self._change_settings(action)
            case "summary":
                fresh, events = self._workspace.new_from_summary(self._chat)
                list(events)
                if action.number % 2:
                    self._chat, self._ever = fresh, {}

    def _check_store(self) -> None:
        """The store reopens as the conversation is, and lost or changed nothing."""
        with Store(self._store.folder) as store:
            again = self._opened(store).open(self._chat.id)
            assert again.steps == self._chat.steps
            assert again._journal.view.tree.ends == self._chat._journal.view.tree.ends
            assert again.settings() == self._chat.settings()
            assert again.summary == self._chat.summary
            assert again.used_slots == self._chat.used_slots
            now = {turn.id: turn for turn in store.load(again.id)[1]}
        for ident, earlier in self._ever.items():
            assert now[ident].parent == earlier.parent
            assert now[ident].turn.text.startswith(earlier.turn.text)
            ids = earlier.turn.token_ids
            assert now[ident].turn.token_ids[: len(ids)] == ids
        self._ever = now

    def _check_prompt(self) -> None:
        """The model was asked exactly what is shown and not left out."""
        shown = [step.turn for step in self._chat.steps if not step.left_out]
        asked = list(self._backend.asked[-1])
        before_answer = asked[:-1] if asked[-1].role == "assistant" else asked
        assert shown[: len(before_answer)] == before_answer
        assert len(shown) - len(before_answer) in {0, 1}

    def _opened(self, store: Store) -> Workspace:
        workspace = Workspace(store, lambda: (self._backend, self._settings))
        workspace.load()
        return workspace

    def _reopen(self) -> None:
        ident, stored = self._chat.id, bool(self._chat.steps or self._chat.summary)
        self._store.close()
        self._store = Store(self._store.folder)
        self._workspace = self._opened(self._store)
        self._chat = self._workspace.open(ident) if stored else self._workspace.new()

    def _stopped(self, events: Iterator[Event], tokens: int) -> None:
        last: Event | None = None
        for last in events:
            tokens -= isinstance(last, Token)
            if tokens < 0:
                self._chat.cancel()
        assert isinstance(last, Finished)

    def _change_settings(self, action: Action) -> None:
        limit = action.cut + 1 if action.number > 1 else self._settings.max_new_tokens
        self._chat.change_settings(
            ChatSettings(
                sampling=self._settings.sampling,
                system_prompt=action.text,
                thinking=action.number % 2 == 1,
                thinking_budget=5,
                max_new_tokens=limit,
            )
        )

    def _step(self, action: Action) -> Step:
        return self._chat.steps[action.number]

    def _picture_file(self, color: str) -> Path:
        path = self._folder / f"{color}.png"
        stream = BytesIO()
        Image.new("RGB", (64, 64 + 32 * COLORS.index(color)), color).save(stream, "PNG")
        path.write_bytes(stream.getvalue())
        return path


def _left(events: Iterator[Event], tokens: int) -> None:
    for event in events:
        tokens -= isinstance(event, Token)
        if tokens < 0:
            return
