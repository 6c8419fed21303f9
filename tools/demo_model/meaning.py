"""Reads answers by their meaning: which shapes, colours, places and numbers a sentence names.

The counterpart of the sentences in `picture_talk`; used by checks, so that an answer need
not be worded as in training.
"""

from __future__ import annotations

import re

from .phrases import NUMBER_WORDS
from .pictures import COLOURS, FORMS

Named = tuple[str, str, str]
"""Colour, form and place; each may be empty when the sentence does not say it."""

WORD = re.compile(r"[a-z]+|\d+")
_PLACE = r"(?:(?:at|on|in) the ((?:top|bottom)(?: (?:left|right))?|left|right|middle))"
_SHAPE = re.compile(rf"(?:({'|'.join(COLOURS)}) )?\b({'|'.join(FORMS)})s?\b(?: (?:is )?{_PLACE})?")


def words(answer: str) -> list[str]:
    """Lower-case words and numbers of the answer."""
    return WORD.findall(answer.lower())


def shapes_named(answer: str) -> set[Named]:
    """Every shape that the answer names."""
    return {(m[1] or "", m[2], m[3] or "") for m in _SHAPE.finditer(answer.lower())}


def places_named(answer: str) -> set[str]:
    """Every place that the answer names."""
    return set(re.findall(_PLACE, answer.lower()))


def colours_named(answer: str) -> set[str]:
    """Every colour of the picture world that the answer names."""
    return set(words(answer)) & set(COLOURS)


def numbers_named(answer: str) -> list[int]:
    """Numbers in the answer, as digits or words, in order ("no" and "nothing" count as 0)."""
    found = []
    for word in words(answer):
        if word.isdigit():
            found.append(int(word))
        elif word in NUMBER_WORDS:
            found.append(NUMBER_WORDS.index(word))
    return found


def is_yes(answer: str) -> bool:
    """Whether the answer starts with yes."""
    return words(answer)[:1] == ["yes"]


def is_no(answer: str) -> bool:
    """Whether the answer denies: it starts with no, or says that there is no such thing."""
    said = words(answer)
    return bool(said) and (said[0] == "no" or "no" in said or "nothing" in said)
