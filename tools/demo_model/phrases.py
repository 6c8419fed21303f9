"""Small tools for making sentences: choices in braces, typing slips, number words, lists of things.

Knows nothing of what the sentences are about.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image

from .words import THINGS

NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
ONSETS = (
    *"bcdfghjklmnprstvwz", *"bcdfghjklmnprstvwz", "y", "br", "ch", "cl", "dr", "gr", "pr", "qu",
    "sh", "st", "th", "tr",
)  # fmt: skip
CODAS = (
    *"nnssllrrktmdxey", "", "", "", "", "ck", "th", "ra", "ndo", "lia", "mes", "nry", "bert", "nd",
    "rt", "ne", "ke", "son", "ss", "lly", "ng", "rk", "ian", "er", "el", "ix",
)  # fmt: skip
CHOICE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Turn:
    """One question with its answer.

    `thought` is what the model writes between the think tags when thinking is on; `check`
    says whether an answer means the right thing (None: only the exact text is known).
    """

    question: str
    answer: str
    thought: str
    pictures: tuple[Image.Image, ...] = ()
    check: Callable[[str], bool] | None = None


def expand(rng: random.Random, pattern: str) -> str:
    """Replace each `{a|b|c}` by one of its choices, innermost first, and tidy the spaces."""
    while found := CHOICE.search(pattern):
        pattern = (
            pattern[: found.start()] + rng.choice(found[1].split("|")) + pattern[found.end() :]
        )
    return re.sub(r"\s+([?.!,])", r"\1", " ".join(pattern.split()))


def filled(rng: random.Random, pattern: str) -> str:
    """The pattern with a thing, a word that nobody knows or a number for each place of one."""
    while "{thing}" in pattern or "{word}" in pattern or "{number}" in pattern:
        pattern = pattern.replace("{thing}", rng.choice(THINGS), 1)
        pattern = pattern.replace("{word}", made_up_word(rng), 1)
        number = rng.randint(0, 10 ** rng.randint(1, 4))
        pattern = pattern.replace("{number}", str(number), 1)
    return pattern


def typed(rng: random.Random, sentence: str, slips: float = 0.12) -> str:
    """The sentence as people type it: other case, no full stop, sometimes one typing slip.

    `slips` is the probability of a slip.
    """
    if rng.random() < slips and len(sentence) > 12:
        spot = rng.randrange(2, len(sentence) - 2)
        if sentence[spot : spot + 2].isalpha():
            kind = rng.randrange(3)
            middle = (
                sentence[spot + 1] + sentence[spot],
                sentence[spot],
                sentence[spot] * 2 + sentence[spot + 1],
            )[kind]
            sentence = sentence[:spot] + middle + sentence[spot + 2 :]
    style = rng.random()
    if style < 0.3:
        sentence = sentence.lower()
    elif style < 0.34:
        sentence = sentence.upper()
    elif style < 0.85:
        sentence = sentence[:1].upper() + sentence[1:]
    if rng.random() < 0.3:
        sentence = sentence.rstrip("?.!。？")
    return sentence


def listed(items: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def article(noun: str) -> str:
    """The noun with "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """The number as a word before its noun: one circle, no circles."""
    return f"{NUMBER_WORDS[number]} {noun}{'' if number == 1 else 's'}"


def kept_for_measuring(value: str) -> bool:
    """Whether a value to remember is for held-out questions only: one in eight is."""
    return zlib.crc32(value.lower().encode()) % 8 == 0


def made_up_word(rng: random.Random) -> str:
    """A pronounceable word of two or three syllables that no list contains."""
    parts = [rng.choice(ONSETS) + rng.choice("aeiou") for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    return "".join([*parts, rng.choice(CODAS)])


def made_up_name(rng: random.Random) -> str:
    """A name of one to three syllables, which may begin with a vowel and end in any letter."""
    syllables = [
        rng.choice((rng.choice(ONSETS), rng.choice(ONSETS), "", "kh", "w", "j"))
        + rng.choice(("a", "e", "i", "o", "u", "y", "ia", "ei", "ai", "eo", "au"))
        + rng.choice(("", "", "n", "l", "r", "s", "m", "g", "d", "x"))
        for _ in range(rng.choice((1, 2, 2, 3)))
    ]
    end = rng.choice(["", "", *CODAS, *"fghkvxz"])
    return f"{''.join(syllables)}{end}".capitalize()
