"""The tokens that are worth a draft: those that come often, of every script.

A draft head that chooses among a tenth of the vocabulary reads a tenth of the bytes. Its guesses
are checked by the whole head, so a token that is missing costs speed only.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from q35export.calibration.text import BUILT_IN, read_windows

Int64 = npt.NDArray[np.int64]

DRAFTS = 32_768
"""Tokens that a draft may be, at most."""


def frequent_tokens(checkpoint: Path, vocabulary: int) -> Int64 | None:
    """`DRAFTS` of more than so many token ids, ascending: those of the calibration text and special
    ones, and of each script the same share, lowest ids first, as byte-pair encoding learned the
    most frequent first. None where there are no more."""
    if vocabulary <= DRAFTS:
        return None
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    windows = read_windows(BUILT_IN, checkpoint, vocabulary)
    needed = {token for window in windows for token in window.ids.tolist()}
    needed |= {token for token in tokenizer.added_tokens_decoder if token < vocabulary}
    scripts: dict[str, list[int]] = {}
    texts = tokenizer.batch_decode([[token] for token in range(min(vocabulary, len(tokenizer)))])
    for token, text in enumerate(texts):
        scripts.setdefault(_script(text), []).append(token)
    shares = {
        token: rank / len(tokens)
        for tokens in scripts.values()
        for rank, token in enumerate(tokens)
    }
    others = sorted(shares.keys() - needed, key=lambda token: (shares[token], token))
    return np.sort(np.array([*sorted(needed), *others][:DRAFTS]))


def _script(text: str) -> str:
    """The first word of its first letter's name, such as "LATIN"; empty where there is none."""
    letter = next((char for char in text if char.isalpha()), "")
    return unicodedata.name(letter, "").split(" ")[0] if letter else ""
