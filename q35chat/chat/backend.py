"""What a conversation asks of the model behind it; the chat engine is the one real answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from q35chat.chat.events import Event, PromptPlan
from q35chat.chat.service import ModelInfo
from q35chat.chat.values import Attachment, ChatSettings, Turn


class ChatBackend(Protocol):
    """A loaded model that plans and answers prompts.

    Turns that end with a question are answered; turns that end with an answer are gone on with.
    The system prompt comes from the settings.
    """

    @property
    def model(self) -> ModelInfo:
        """What the meters name."""

    @property
    def vocabulary(self) -> str:
        """Names the tokenizer: token ids kept under another name are not this model's."""

    def attach(self, path: Path, max_tokens: int) -> Attachment:
        """Load, check and measure a picture. Raises PictureError."""

    def plan(self, turns: Sequence[Turn], settings: ChatSettings) -> PromptPlan:
        """What `run` would read, exactly; also when it is more than the capacity.

        Computes nothing on the device and may be called from any thread, also during a run.
        Raises CapacityError for a question that is too long by far.
        """

    def run(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        """The events of a turn, `PromptPlan` first and `Finished` last, computed as consumed.

        Texts and token ids are of this run alone, also when it goes on with an answer.
        Raises CapacityError before the first event when the prompt does not fit. Closing the
        iterator anywhere leaves the model usable.
        """

    def interrupt(self, *, leaving: bool = False) -> None:
        """End what the checkpoint's template or tokenizer does for a prompt, from any thread;
        whoever waits for it gets BundleError. Nothing more is begun where the program is
        `leaving`."""

    def close(self) -> None:
        """Free what the model holds; further runs are errors. Also for one whose runtime died."""

    def read_ahead(
        self, turns: Sequence[Turn], settings: ChatSettings, should_stop: Callable[[], bool]
    ) -> None:
        """Between runs, read what any follow-up of `turns` begins with, where that is little.

        The turns end with an answer that is complete, or there are none. What was kept of them is
        brought back. Stopped anywhere, the model is usable.
        """

    def keep(
        self,
        turns: Sequence[Turn],
        settings: ChatSettings,
        chat: str,
        should_stop: Callable[[], bool],
        *,
        shared: bool = False,
    ) -> None:
        """Between runs, keep for later processes what the model's state holds of `turns`, until
        the `chat` is dropped; `shared` where other chats may begin with its instructions or its
        pictures."""
