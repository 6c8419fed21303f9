"""Text to ids by the checkpoint's own tokenizer and template, and ids to text as they come.

Loaded from a bundle without torch; wraps what transformers keeps. Byte-level vocabularies spell
each byte as one printable character, and a token may end inside a UTF-8 sequence: the detokeniser
gives never half a character, never a special token. Knows no conversation and no positions.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final

from q35chat.errors import BundleError

Message = Mapping[str, Any]
_REFUSED: Final = "the chat template refused the conversation"
_OWN_CHARACTERS: Final = 1_000_000
_OF_A_MESSAGE: Final = 1_000
_MOST_BYTES: Final = 4  # of a character
_CANNOT_READ: Final = "the bundle's tokenizer cannot read this text"


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """Ids of `<think>` and `</think>`; None in a vocabulary without them."""

    open: int | None
    close: int | None

    def left_open(self, ids: Sequence[int]) -> bool:
        """Whether `ids`, the end of a prompt, open a thought and do not close it."""
        for token in reversed(ids):
            if token == self.close:
                return False
            if token == self.open:
                return True
        return False


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

        with _translated(f"{folder} has a damaged tokenizer"):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        if not tokenizer.chat_template:
            raise BundleError(f"{folder} has no chat template: export the bundle again")
        tokenizer.model_max_length = sys.maxsize  # the capacity is the limit
        return cls(tokenizer)

    def render(
        self, messages: Sequence[Message], *, generation_prompt: bool, thinking: bool
    ) -> str:
        """The conversation as the model reads it. Raises BundleError when the template refuses."""
        with _translated(_REFUSED):
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=generation_prompt,
                enable_thinking=thinking,
            )
        _check_rendered(text, messages)
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

    def lower_bound(self, text: str) -> int:
        """The fewest tokens that `text` can have in a prompt, where its ends are trimmed: no token
        spells more bytes than the longest one, and tokenising a megabyte takes seconds."""
        text, normalizer = text.strip(), self._tokenizer.backend_tokenizer.normalizer
        with _translated(_CANNOT_READ):
            text = text if normalizer is None else normalizer.normalize_str(text)
        data = text.encode("utf-8", "surrogatepass")
        return -(-len(data) // self.longest)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        most = 1
        for piece in sorted(self._tokenizer.get_vocab(), key=len, reverse=True):
            if len(piece) * _MOST_BYTES <= most:
                break
            most = max(most, len(piece_bytes(piece)))
        return most

    @cached_property
    def tags(self) -> ThinkTags:
        """The tags of a thought."""
        return ThinkTags(self.id_of("<think>"), self.id_of("</think>"))

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
        with self._lock, _translated(_CANNOT_READ):
            ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=False, split_special_tokens=literally, verbose=False
            )
        return ids


def _check_rendered(text: str, messages: Sequence[Message]) -> None:
    """Refuse what would keep the tokenizer busy for long, or is no text. A template writes the
    messages and a little around them."""
    given = sum(_length(part) for message in messages for part in message.values())
    most = _OWN_CHARACTERS + _OF_A_MESSAGE * len(messages) + 2 * given
    if len(text) > most:
        raise BundleError(
            f"the chat template wrote {len(text):,} characters for a conversation of {given:,}, "
            f"at most {most:,} make sense; export the bundle again"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BundleError(
            f"the chat template wrote U+{ord(text[error.start]):04X}, which is no character; "
            "export the bundle again"
        ) from error


def _length(part: object) -> int:
    """Characters of a message's part: a text, or a list of texts and pictures."""
    if isinstance(part, str):
        return len(part)
    parts = part.values() if isinstance(part, Mapping) else part
    return sum(map(_length, parts)) if isinstance(parts, Iterable) else 0


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Whatever a tokenizer or a template led its reader to raise, as one line; native code that
    panics raises what is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{what}: {why}") from error


class Detokenizer:
    """One stream of text."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that `token` completes, perhaps none."""
        return self._decoder.decode(token_bytes(self._tokenizer, token))

    def flush(self) -> str:
        """A replacement character if the stream ends inside one, else nothing."""
        return self._decoder.decode(b"", final=True)


def whole_characters(tokenizer: ChatTokenizer, ids: Iterable[int]) -> str:
    """The text of `ids` without a character that they leave unfinished."""
    stream = Detokenizer(tokenizer)
    return "".join(stream.push(token) for token in ids)


def token_bytes(tokenizer: ChatTokenizer, token: int) -> bytes:
    """What `token` spells; nothing for a special token or an id without a spelling."""
    piece = None if token in tokenizer.special_ids else tokenizer.piece(token)
    return b"" if piece is None else piece_bytes(piece)


def piece_bytes(piece: str) -> bytes:
    """What a spelling of the vocabulary stands for."""
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.encode()


def _byte_of_each_character() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the rest follow from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


_BYTES = _byte_of_each_character()
