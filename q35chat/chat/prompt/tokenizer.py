"""Text to ids by the checkpoint's own tokenizer and template, and ids to text as they come.

Byte-level vocabularies spell each byte as one printable character, and a token may end inside a
UTF-8 sequence: the detokeniser gives never half a character, never a special token. Knows no
conversation and no positions.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from q35chat.chat.prompt.tokenizer_process import PROCESS
from q35chat.chat.values import TemplateOffers

Message = Mapping[str, Any]
_MOST_BYTES: Final = 4  # of a character


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
    """Text to ids and back, and messages to text by the checkpoint's template.

    What is computed by rules of the checkpoint's is computed in a process of its own.
    """

    def __init__(self, folder: Path, *, pictures: bool = True) -> None:
        """Read the tokenizer and template files of `folder`, of a model that sees `pictures` or
        none. Raises BundleError."""
        self._which = folder, pictures
        self._wanted = True
        facts = self._ask("facts")
        self._ids: dict[str, int] = facts["vocabulary"] | facts["special"]
        self._spellings = {index: piece for piece, index in self._ids.items()}
        self._special_texts = tuple(facts["special"])
        self.special_ids = frozenset(facts["special"].values())
        self.template_files: tuple[str, ...] = tuple(facts["template_files"])
        self._added_ids = frozenset(facts["added"])
        self._end: int | None = facts["end"]
        self._template: str = facts["template"]

    def render(
        self,
        messages: Sequence[Message],
        *,
        generation_prompt: bool,
        thinking: bool,
        chosen: Mapping[str, object] = MappingProxyType({}),
    ) -> str:
        """The conversation as the model reads it, with further variables that were `chosen` of
        `offers`. Raises BundleError when the template refuses."""
        options = {"generation_prompt": generation_prompt, "thinking": thinking}
        text: str = self._ask("render", messages, **options, chosen=dict(chosen))
        return text

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; the names of special tokens become those tokens."""
        return self._encode(text, literally=False)

    def encode_literally(self, text: str) -> list[int]:
        """Ids of `text` with no special token among them, whatever it spells."""
        return self._encode(text, literally=True)

    def interrupt(self, *, leaving: bool = False) -> None:
        """End what is being rendered or encoded, from any thread: it raises BundleError. Where the
        program is `leaving`, all that is asked from now on does."""
        self._wanted = self._wanted and not leaving
        PROCESS.interrupt()

    def spells_special(self, text: str) -> bool:
        """Whether `text` contains the name of a special token."""
        return any(name in text for name in self._special_texts)

    def special_names_in(self, text: str) -> list[str]:
        """The names of special tokens that `text` contains."""
        return [name for name in self._special_texts if name in text]

    def piece(self, token: int) -> str | None:
        """The vocabulary's spelling of an id, None for an id without one."""
        return self._spellings.get(token)

    def spelled(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens by their names."""
        spelled = [
            (self.piece(token) or "").encode()
            if token in self.special_ids
            else token_bytes(self, token)
            for token in ids
        ]
        return b"".join(spelled).decode("utf-8", "replace")

    def lower_bound(self, text: str) -> int:
        """The fewest tokens that `text` can have in a prompt, where its ends are trimmed: no token
        spells more bytes than the longest one, and tokenising a megabyte takes seconds."""
        length: int = self._ask("length", text.strip())
        return -(-length // self.longest)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        most = 1
        for piece in sorted(self._ids, key=len, reverse=True):
            if len(piece) * _MOST_BYTES <= most:
                break
            most = max(most, len(piece_bytes(piece)))
        return most

    @cached_property
    def offers(self) -> TemplateOffers:
        """What the template lets one choose."""
        from q35chat.chat.prompt.offers import offers_of  # noqa: PLC0415  (loads jinja2)

        def render(messages: Sequence[Message], chosen: Mapping[str, object]) -> str:
            return self.render(messages, generation_prompt=True, thinking=True, chosen=chosen)

        return offers_of(self._template, render)

    @cached_property
    def tags(self) -> ThinkTags:
        """The tags of a thought."""
        return ThinkTags(self.id_of("<think>"), self.id_of("</think>"))

    def id_of(self, piece: str) -> int | None:
        """The id of a spelling, None if the vocabulary lacks it."""
        return self._ids.get(piece)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The id that the tokenizer's files call the end of a sequence, and the one with which the
        template ends an answer, as far as there are such. Raises BundleError."""
        ends = (self._end, self._end_of_answer())
        return frozenset(token for token in ends if token is not None)

    def _end_of_answer(self) -> int | None:
        """The added token that the template writes right behind an answer."""
        answer = uuid4().hex
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": answer}]
        text = self.render(messages, generation_prompt=False, thinking=False)
        ids = self.encode(text.rpartition(answer)[2].strip()) if answer in text else []
        return ids[0] if ids and ids[0] in self._added_ids else None

    @property
    def last(self) -> tuple[int, str]:
        """The largest id, with its spelling."""
        spelling, token = max(self._ids.items(), key=lambda entry: entry[1])
        return token, spelling

    def _encode(self, text: str, *, literally: bool) -> list[int]:
        ids: list[int] = self._ask("encode", text, literally=literally)
        return ids

    def _ask(self, name: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return PROCESS.ask(name, self._which, lambda: self._wanted, *arguments, **options)


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
