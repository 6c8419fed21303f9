"""The checkpoint's own tokenizer and chat template, loaded from a bundle without torch.

Wraps what transformers keeps; knows no conversation and no positions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from q35chat.errors import BundleError

Message = Mapping[str, Any]


class ChatTokenizer:
    """Text to ids and back, and messages to text by the checkpoint's template."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401  (transformers is untyped)
        self._tokenizer = tokenizer
        self._lock = Lock()  # literal encoding sets a switch that every encoding reads
        added = tokenizer.added_tokens_decoder
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._special_texts = tuple(token.content for token in added.values() if token.special)

    @classmethod
    def load(cls, folder: Path) -> ChatTokenizer:
        """Read the tokenizer and template files of `folder`. Raises BundleError."""
        if not (folder / "tokenizer.json").is_file():
            raise BundleError(f"{folder} has no tokenizer.json: export the bundle again")
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would ask for torch
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  (heavy)

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # the reader raises whatever the file led it to
            raise BundleError(f"{folder} has a damaged tokenizer: {_line(error)}") from error
        if not tokenizer.chat_template:
            raise BundleError(f"{folder} has no chat template: export the bundle again")
        tokenizer.model_max_length = sys.maxsize  # the capacity is the limit
        return cls(tokenizer)

    def render(
        self, messages: Sequence[Message], *, generation_prompt: bool, thinking: bool
    ) -> str:
        """The conversation as the model reads it. Raises BundleError when the template refuses."""
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=generation_prompt,
                enable_thinking=thinking,
            )
        except Exception as error:  # templates raise what they like
            raise BundleError(
                f"the chat template refused the conversation: {_line(error)}"
            ) from error
        return text

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; the names of special tokens become those tokens."""
        return self._encode(text, literally=False)

    def encode_literally(self, text: str) -> list[int]:
        """Ids of `text` with no special token among them, whatever it spells."""
        return self._encode(text, literally=True)

    def spells_special(self, text: str) -> bool:
        """Whether `text` contains the name of a special token."""
        return any(name in text for name in self._special_texts)

    def piece(self, token: int) -> str | None:
        """The vocabulary's spelling of an id, None for an id without one."""
        spelling: str | None = self._tokenizer.convert_ids_to_tokens(token)
        return spelling

    def pieces(self) -> list[str]:
        """All spellings of the vocabulary."""
        return list(self._tokenizer.get_vocab())

    def normalised(self, text: str) -> str:
        """`text` as it is before it is cut into tokens."""
        normalizer = self._tokenizer.backend_tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def id_of(self, piece: str) -> int | None:
        """The id of a spelling, None if the vocabulary lacks it."""
        token = self._tokenizer.convert_tokens_to_ids(piece)
        return token if isinstance(token, int) and self.piece(token) == piece else None

    @property
    def end_ids(self) -> frozenset[int]:
        """The id the tokenizer's files call the end of a sequence, if they do."""
        token = self._tokenizer.eos_token_id
        return frozenset() if token is None else frozenset({token})

    def _encode(self, text: str, *, literally: bool) -> list[int]:
        with self._lock:
            ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=False, split_special_tokens=literally, verbose=False
            )
        return ids


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
