"""Questions about two pictures of one message."""

from __future__ import annotations

import random

from . import meaning
from .one_picture import ask_one
from .phrases import NUMBER_WORDS, Turn, counted
from .pictures import Scene
from .sight import View, ask, found, name, triples


def ask_two(rng: random.Random, first: Scene, second: Scene) -> Turn:
    """A random question about two pictures, or about one of them."""
    views = (View(first, "the first picture"), View(second, "the second picture"))
    kind = rng.random()
    if kind < 0.4:
        return ask_one(rng, rng.choice(views))
    if kind < 0.65:
        return describe_both(rng, *views)
    if kind < 0.85 and (turn := which_has(rng, *views)) is not None:
        return turn
    if rng.random() < 0.4:
        return in_total(rng, *views)
    return which_has_more(rng, *views)


def describe_both(rng: random.Random, one: View, two: View) -> Turn:
    """All shapes of both pictures."""
    parts = [
        f"{view.which.capitalize()} shows {found(view.scene.shapes) or 'no shapes'}."
        for view in (one, two)
    ]

    def right(said: str) -> bool:
        head, _, tail = said.lower().partition("second picture")
        shown = (meaning.shapes_named(head), meaning.shapes_named(tail))
        return shown == (triples(one.scene), triples(two.scene))

    return Turn(ask(rng, "both"), " ".join(parts), thought(one, two), check=right)


def which_has(rng: random.Random, one: View, two: View) -> Turn | None:
    """In which of the pictures a shape is that only one of them has."""
    single = [
        (view, shape)
        for view, other in ((one, two), (two, one))
        for shape in view.scene.shapes
        if name(shape) not in map(name, other.scene.shapes)
    ]
    if not single:
        return None
    view, shape = rng.choice(single)
    return Turn(
        ask(rng, "which_has", asked=name(shape)),
        f"The {name(shape)} is in {view.which}.",
        thought(one, two),
        check=lambda said: _ordinals(said) == {view.which.split()[1]},
    )


def in_total(rng: random.Random, one: View, two: View) -> Turn:
    """How many shapes both pictures have together."""
    numbers = (len(one.scene.shapes), len(two.scene.shapes))
    total = sum(numbers)
    return Turn(
        ask(rng, "in_total"),
        f"{counted(numbers[0], 'shape').capitalize()} in the first picture and "
        f"{NUMBER_WORDS[numbers[1]]} in the second: {counted(total, 'shape')} in total.",
        thought(one, two),
        check=lambda said: meaning.numbers_named(said)[-1:] == [total],
    )


def which_has_more(rng: random.Random, one: View, two: View) -> Turn:
    """Which picture has more shapes, or that both have as many."""
    question = ask(rng, "more")
    numbers = (len(one.scene.shapes), len(two.scene.shapes))
    if numbers[0] == numbers[1]:
        verdict, truth = "both pictures have the same number of shapes", {"both"}
    else:
        winner = "first" if numbers[0] > numbers[1] else "second"
        verdict, truth = f"the {winner} picture has more shapes", {winner}
    against = f"{counted(numbers[0], 'shape')} against {NUMBER_WORDS[numbers[1]]}"
    return Turn(
        question,
        f"{against.capitalize()}: {verdict}.",
        thought(one, two),
        check=lambda said: {"both", "first", "second"} & set(meaning.words(said)) == truth,
    )


def thought(one: View, two: View) -> str:
    """A look at both pictures."""
    return f"{one.thought} {two.thought}"


def _ordinals(said: str) -> set[str]:
    return {"first", "second"} & set(meaning.words(said))
