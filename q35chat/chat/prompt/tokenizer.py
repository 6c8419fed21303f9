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
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

from q35chat.chat.values import TemplateOffers
from q35chat.errors import BundleError, Remedy
from q35chat.json_reader import Fields, read_json

Message = Mapping[str, Any]
_OWN_CHARACTERS: Final = 1_000_000
_OF_A_MESSAGE: Final = 1_000
_MOST_BYTES: Final = 4  # of a character
_wrong: Final = partial(BundleError, remedy=Remedy.EXPORT_AGAIN)
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

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401  (transformers is untyped)
        template_files: tuple[str, ...] = ("chat_template.jinja",),
    ) -> None:
        self._tokenizer = tokenizer
        self.template_files = template_files
        self._lock = Lock()  # literal encoding sets a switch that every encoding reads
        added = tokenizer.added_tokens_decoder
        self._added_ids = frozenset(added)
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._special_texts = tuple(token.content for token in added.values() if token.special)

    @classmethod
    def load(cls, folder: Path, *, pictures: bool = True) -> ChatTokenizer:
        """Read the tokenizer and template files of `folder`, of a model that sees `pictures` or
        none. Raises BundleError."""
        if not (folder / "tokenizer.json").is_file():
            raise BundleError(f"{folder} has no tokenizer.json", Remedy.EXPORT_AGAIN)
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would ask for torch
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  (heavy)

        documents = _documents(folder)
        with _translated(f"{folder / 'tokenizer.json'} is a damaged tokenizer"):
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        templates = _templates(folder, documents, tokenizer.chat_template, pictures=pictures)
        used, tokenizer.chat_template = next(iter(templates.items()))
        tokenizer.model_max_length = sys.maxsize  # the capacity is the limit
        others = (name for name in templates if templates[name] != tokenizer.chat_template)
        return cls(tokenizer, (used, *others))

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
        with _translated(f"the chat template ({self.template_files[0]}) refused the conversation"):
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=generation_prompt,
                enable_thinking=thinking,
                **chosen,
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
    def offers(self) -> TemplateOffers:
        """What the template lets one choose."""
        from q35chat.chat.prompt.offers import offers_of  # noqa: PLC0415  (loads jinja2)

        def render(messages: Sequence[Message], chosen: Mapping[str, object]) -> str:
            return self.render(messages, generation_prompt=True, thinking=True, chosen=chosen)

        return offers_of(self._tokenizer.chat_template, render)

    @cached_property
    def tags(self) -> ThinkTags:
        """The tags of a thought."""
        return ThinkTags(self.id_of("<think>"), self.id_of("</think>"))

    def id_of(self, piece: str) -> int | None:
        """The id of a spelling, None if the vocabulary lacks it."""
        token = self._tokenizer.convert_tokens_to_ids(piece)
        return token if isinstance(token, int) and self.piece(token) == piece else None

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The id that the tokenizer's files call the end of a sequence, and the one with which the
        template ends an answer, as far as there are such. Raises BundleError."""
        ends = (self._tokenizer.eos_token_id, self._end_of_answer())
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
        spelling, token = max(self._tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        return token, spelling

    def _encode(self, text: str, *, literally: bool) -> list[int]:
        with self._lock, _translated(_CANNOT_READ):
            ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=False, split_special_tokens=literally, verbose=False
            )
        return ids


def _documents(folder: Path) -> dict[str, Fields]:
    """What those JSON files say, by name, that may hold a template. Raises BundleError."""
    found = {}
    for name in ("processor_config.json", "chat_template.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            try:
                found[name] = Fields(read_json(folder / name), str(folder / name), _wrong)
            except ValueError as error:
                raise _wrong(f"{folder / name} is not valid JSON ({error})") from error
    return found


def _templates(
    folder: Path, documents: Mapping[str, Fields], own: object, *, pictures: bool
) -> dict[str, str]:
    """The chat templates by the name of their file, the one that counts first. Raises BundleError
    where there is none.

    transformers has a template of the processor, which takes pictures, and one of the tokenizer,
    `own`; where several files have one, the order is that of its 5th version.
    """
    said = {name: fields.raw("chat_template") for name, fields in documents.items()}
    tokenizers = {"tokenizer_config.json": said.pop("tokenizer_config.json", None)}
    if (folder / "chat_template.jinja").is_file():
        tokenizers = {"chat_template.jinja": own, **tokenizers}
    else:
        tokenizers = {"tokenizer_config.json": own}
    ordered = {**said, **tokenizers} if pictures else {**tokenizers, **said}
    found = {name: template for name, template in ordered.items() if template is not None}
    if not found:
        raise _wrong(f"{folder} has no chat template")
    first = next(iter(found))
    return {
        name: _default_of(folder / name, template)
        for name, template in found.items()
        if name == first or isinstance(template, str)
    }


def _default_of(path: Path, template: object) -> str:
    """The template to use of those that a file names. Raises BundleError."""
    if isinstance(template, dict):
        template = template.get("default", sorted(template))
    if not isinstance(template, str):
        named = f", only {', '.join(map(str, template))}" if isinstance(template, list) else ""
        raise _wrong(f"{path} has no chat_template named 'default'{named}")
    return template


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
