"""Ids to text as they come: never half a character, never a special token.

Byte-level vocabularies spell each byte as one printable character; a token may end inside a
UTF-8 sequence. The pieces, joined and flushed, are the full decode.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from q35chat.chat.prompt.tokenizer import ChatTokenizer


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
