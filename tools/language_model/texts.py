"""The texts of the language model: found on this machine, cut into documents, encoded once.

Three kinds: English, Chinese and code. One document in forty is held out of training. Knows no
torch.
"""

from __future__ import annotations

import gzip
import html
import json
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers
from transformers import Qwen3_5Tokenizer

from tools.demo_model.tokenizer import SPECIAL_TOKENS, THINK_TOKENS

KINDS = ("english", "chinese", "code")
PIECES = 8176
"""Byte-level pieces of the vocabulary; special tokens fill it up to a multiple of 32."""
MOST_CHARACTERS = {"english": 24_000_000, "chinese": 12_000_000, "code": 16_000_000}
DOCUMENT = 6000
"""Characters of a document; longer files are cut at lines."""
HELD_OUT = 40
Tokens = npt.NDArray[np.uint16]

_NOT_TEXT = re.compile(
    r"<(script|style|nav|header|footer|head)\b.*?</\1>", re.DOTALL | re.IGNORECASE
)
_BREAK = re.compile(r"</?(p|div|li|h\d|tr|dt|dd|pre|br|table|section)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]+>")
_ROFF = re.compile(r'^[.\'](\w+)? ?(.*)$|\\"[^\n]*|\\f.|\\[-&|e]', re.MULTILINE)
_LOCALE = re.compile(r"[/.]([a-z]{2})[-_]([A-Z]{2}|[a-z]{2})[/.]")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


@dataclass(frozen=True)
class Corpus:
    """The tokenizer, the training tokens of each kind, and the documents held out."""

    tokenizer: Tokenizer
    tokens: dict[str, Tokens]
    held_out: dict[str, list[str]]

    @classmethod
    def make(cls, work: Path, texts: Sequence[Path], code: Sequence[Path]) -> Corpus:
        """Read, train the tokenizer and encode; what is in `work` already is taken from there."""
        folder = work / "corpus"
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            _build(folder, _documents(texts, code))
            (folder / "done").touch()
        return cls(
            Tokenizer.from_file(str(folder / "tokenizer.json")),
            {kind: np.load(folder / f"{kind}.npy", mmap_mode="r") for kind in KINDS},
            {kind: _read_held_out(folder, kind) for kind in KINDS},
        )


def _read_held_out(folder: Path, kind: str) -> list[str]:
    return (folder / f"held_out_{kind}.txt").read_text(encoding="utf-8").split("\f")


def _build(folder: Path, documents: dict[str, list[str]]) -> None:
    learnt: dict[str, list[str]] = {}
    for kind, found in documents.items():
        held = [text for text in found if zlib.crc32(text.encode()) % HELD_OUT == 0]
        learnt[kind] = [text for text in found if zlib.crc32(text.encode()) % HELD_OUT]
        joined = "\f".join(text.replace("\f", "\n") for text in held)
        (folder / f"held_out_{kind}.txt").write_text(joined, encoding="utf-8")
    tokenizer = _train_tokenizer([text for kind in KINDS for text in learnt[kind][::4]])
    tokenizer.save(str(folder / "tokenizer.json"))
    for kind in KINDS:
        written = (as_written(text) for text in learnt[kind])
        ids = [np.array(one.ids, np.uint16) for one in tokenizer.encode_batch(list(written))]
        np.save(folder / f"{kind}.npy", np.concatenate(ids))
        print(f"{kind}: {len(ids)} documents, {sum(map(len, ids)):,} tokens", flush=True)


def as_written(text: str) -> str:
    """A document as the model reads it; every fourth as the answer to its first line."""
    title, _, rest = text.partition("\n")
    if zlib.crc32(title.encode()) % 4 or not rest or len(title) > 100:
        return f"{text}<|endoftext|>"
    return (
        f"<|im_start|>user\n{title}<|im_end|>\n<|im_start|>assistant\n"
        f"<think>\n\n</think>\n\n{rest.strip()}<|im_end|>\n<|endoftext|>"
    )


def _documents(texts: Sequence[Path], code: Sequence[Path]) -> dict[str, list[str]]:
    """Documents by kind, shuffled, up to the most characters of each."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    size = dict.fromkeys(KINDS, 0)
    seen: set[int] = set()
    for root, is_code in [*((path, False) for path in texts), *((path, True) for path in code)]:
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        random.Random(0).shuffle(paths)
        for path in paths:
            for text in _cut(_read(path, is_code=is_code)):
                kind = _kind(text, is_code=is_code)
                if hash_ := zlib.crc32(text.encode()):
                    if hash_ in seen or size[kind] > MOST_CHARACTERS[kind]:
                        continue
                    seen.add(hash_)
                found[kind].append(text)
                size[kind] += len(text)
    for documents in found.values():
        random.Random(0).shuffle(documents)
    return found


def _kind(text: str, *, is_code: bool) -> str:
    if is_code:
        return "code"
    return "chinese" if len(_CHINESE.findall(text)) > len(text) / 10 else "english"


def _read(path: Path, *, is_code: bool) -> str:
    """The plain text of a file; empty where it is of another kind or language."""
    name = path.name.removesuffix(".gz")
    locale = _LOCALE.search(str(path))
    if locale and locale.group(1, 2) not in {("en", "US"), ("zh", "CN"), ("zh", "cn")}:
        return ""
    is_page = bool(re.search(r"\.[1-8]$", name))
    if not (name.endswith(".py") if is_code else name.endswith((".html", ".txt")) or is_page):
        return ""
    data = path.read_bytes()
    try:
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (UnicodeDecodeError, OSError):
        return ""
    if name.endswith(".html"):
        text = _BREAK.sub("\n", _NOT_TEXT.sub("", text))
        text = html.unescape(_TAG.sub("", text))
    elif is_page:
        text = _ROFF.sub(r"\2", text)
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\n\s*\n\s*\n+", "\n\n", text)).strip()


def _cut(text: str) -> Iterator[str]:
    """Pieces of at most `DOCUMENT` characters, cut at lines; short ones are left out."""
    while len(text) > 300:
        end = len(text) if len(text) <= DOCUMENT else text.rfind("\n", 1, DOCUMENT)
        end = end if end > 0 else DOCUMENT
        yield text[:end].strip()
        text = text[end:].strip()


def _train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE with the normalisation and pre-tokenisation of `Qwen3_5Tokenizer`."""
    backend = json.loads(Qwen3_5Tokenizer().backend_tokenizer.to_str())
    tokenizer = Tokenizer.from_str(json.dumps(backend | {"added_tokens": []}))
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    special = [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in THINK_TOKENS])
    return tokenizer
