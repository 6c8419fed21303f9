"""Questions about one picture with their true answers and the checks of their meaning."""

from __future__ import annotations

import random
from collections.abc import Callable

from . import meaning
from .phrases import Turn, article, counted, listed
from .pictures import COLOURS, FORMS, Shape
from .sight import PLACES, View, ask, at, found, name, triples

Asker = Callable[[random.Random, View], Turn | None]
CANNOT_SEE = (
    "I cannot make out simple shapes in this picture. I am a tiny demo model: I know circles, "
    "squares, triangles and stars on a plain ground."
)


def describe(rng: random.Random, view: View) -> Turn:
    """All shapes with their places."""
    kinds = ("describe", "describe_here") if view.alone else ("describe",)
    answer, truth = "I see no shapes: the picture is empty.", triples(view.scene)
    if view.scene.shapes:
        answer = f"I see {found(view.scene.shapes)}."
    return Turn(
        ask(rng, *kinds, which=view.which),
        answer,
        view.thought,
        check=lambda said: meaning.shapes_named(said) == truth,
    )


def how_many(rng: random.Random, view: View) -> Turn:
    """The number of shapes: all, or those of one colour or form, which the answer lists first."""
    shapes = view.scene.shapes
    kind = rng.choice(("shape", "shape", "colour", "form"))
    noun, meant = "shape", shapes
    if kind == "colour":
        colour = rng.choice([shape.colour for shape in shapes] * 2 + list(COLOURS))
        noun, meant = f"{colour} shape", tuple(s for s in shapes if s.colour == colour)
    elif kind == "form":
        noun = rng.choice([shape.form for shape in shapes] * 2 + list(FORMS))
        meant = tuple(shape for shape in shapes if shape.form == noun)
    question = ask(
        rng,
        "how_many",
        things=f"{{{noun}s|{noun}s|objects|figures|things}}" if kind == "shape" else f"{noun}s",
        noun=noun,
        suffix=view.suffix,
        suffix_or_in_it=view.suffix or " {in|on} {the picture|the image}",
    )
    number = len(meant)
    listing = bool(meant) and kind != "shape"
    answer = f"There {'is' if number == 1 else 'are'} {counted(number, noun)}{view.suffix}."
    if listing:
        seen = listed([article(name(shape)) for shape in meant])
        answer = f"I see {seen}{view.suffix}: {counted(number, noun)}."

    def right(said: str) -> bool:
        named = meaning.colours_named(said)
        rightly_listed = not listing or named == {shape.colour for shape in meant}
        return meaning.numbers_named(said)[-1:] == [number] and rightly_listed

    return Turn(question, answer, view.thought, check=right)


def only(view: View, form: str) -> Shape | None:
    """The shape of that form if there is exactly one."""
    same = [shape for shape in view.scene.shapes if shape.form == form]
    return same[0] if len(same) == 1 else None


def colour_of(rng: random.Random, view: View) -> Turn | None:
    """The colour of a form that occurs once, or not at all."""
    forms = [shape.form for shape in view.scene.shapes]
    asked = rng.choice(forms * 6 + list(FORMS))
    shape = only(view, asked)
    if shape is None and asked in forms:
        return None
    question = ask(rng, "colour_of", form=asked, suffix=view.suffix)
    if shape is None:
        answer = f"There is no {asked}{view.suffix}."
        return Turn(question, answer, view.thought, check=meaning.is_no)
    truth = {shape.colour}
    return Turn(
        question,
        f"The {asked}{view.suffix} is {shape.colour}.",
        view.thought,
        check=lambda said: meaning.colours_named(said) == truth,
    )


def form_of(rng: random.Random, view: View) -> Turn | None:
    """The form of a colour that occurs once."""
    colours = [shape.colour for shape in view.scene.shapes]
    single = [shape for shape in view.scene.shapes if colours.count(shape.colour) == 1]
    if not single:
        return None
    shape = rng.choice(single)
    return Turn(
        ask(rng, "form_of", colour=shape.colour, suffix=view.suffix),
        f"The {shape.colour} shape{view.suffix} is {article(shape.form)}.",
        view.thought,
        check=lambda said: {form for _, form, _ in meaning.shapes_named(said)} == {shape.form},
    )


def where(rng: random.Random, view: View) -> Turn:
    """The place of a shape, which may be absent."""
    if view.scene.shapes and rng.random() < 0.88:
        shape = rng.choice(view.scene.shapes)
    else:
        shape = Shape(rng.choice(tuple(COLOURS)), rng.choice(FORMS), 0, 0)
    here = [other for other in view.scene.shapes if name(other) == name(shape)]
    asked = shape.form if only(view, shape.form) and rng.random() < 0.4 else name(shape)
    question = ask(rng, "where", asked=asked, suffix=view.suffix)
    if not here:
        answer = f"There is no {asked}{view.suffix}."
        return Turn(question, answer, view.thought, check=meaning.is_no)
    truth = {here[0].place}
    return Turn(
        question,
        f"The {name(here[0])} is {at(here[0].place)}{view.of_it}.",
        view.thought,
        check=lambda said: meaning.places_named(said) == truth,
    )


def what_at(rng: random.Random, view: View) -> Turn:
    """What lies at a place, which may be empty."""
    places = [shape.place for shape in view.scene.shapes]
    place = rng.choice(places * 5 + list(PLACES))
    here = [shape for shape in view.scene.shapes if shape.place == place]
    side = "{side|}" if place in ("left", "right") else "{corner|}" if " " in place else ""
    spot = at(place).replace(" middle", " {middle|centre|center}")
    question = ask(rng, "what_at", spot=spot, side=side, of_it=view.of_it)
    if not here:
        answer = f"There is nothing {at(place)}."
        return Turn(question, answer, view.thought, check=meaning.is_no)
    truth = {(shape.colour, shape.form) for shape in here}
    verb = "is" if len(here) == 1 else "are"
    return Turn(
        question,
        f"There {verb} {found(here)}.",
        view.thought,
        check=lambda said: {named[:2] for named in meaning.shapes_named(said)} == truth,
    )


def wanted(rng: random.Random, shapes: tuple[Shape, ...]) -> Shape:
    """A shape to ask for: present, similar to one that is present, or any."""
    if shapes and rng.random() < 0.5:
        return rng.choice(shapes)
    if shapes and rng.random() < 0.5:
        near = rng.choice(shapes)
        recoloured = Shape(rng.choice(tuple(COLOURS)), near.form, 0, 0)
        return rng.choice((recoloured, Shape(near.colour, rng.choice(FORMS), 0, 0)))
    return Shape(rng.choice(tuple(COLOURS)), rng.choice(FORMS), 0, 0)


def is_there(rng: random.Random, view: View) -> Turn:
    """Yes or no, with what was found."""
    by_form = rng.random() < 0.3
    shape = wanted(rng, view.scene.shapes)
    asked = shape.form if by_form else name(shape)
    same = [other for other in view.scene.shapes if other.form == shape.form]
    hits = [other for other in same if by_form or other.colour == shape.colour]
    does = f"does {view.which} {{have|show|contain}} {article(asked)}?"
    if view.alone:
        does = f"{{{does}|is {article(asked)} {{in the picture|there}}?}}"
    question = ask(
        rng, "is_there", one=article(asked), asked=asked, suffix=view.suffix, does_it_have=does
    )
    if hits:
        return Turn(question, f"Yes, I see {found(hits)}.", view.thought, check=meaning.is_yes)
    answer = f"No, I see no {asked}{view.suffix}."
    return Turn(question, answer, view.thought, check=meaning.is_no)


def colours(rng: random.Random, view: View) -> Turn | None:
    """The colours of the shapes, in reading order."""
    seen = list(dict.fromkeys(shape.colour for shape in view.scene.shapes))
    if not seen:
        return None
    return Turn(
        ask(rng, "colours", suffix=view.suffix),
        f"I see {listed(seen)}{view.suffix}.",
        view.thought,
        check=lambda said: meaning.colours_named(said) == set(seen),
    )


ASKERS: dict[Asker, int] = {
    describe: 30,
    how_many: 16,
    colour_of: 10,
    form_of: 6,
    where: 12,
    what_at: 14,
    is_there: 9,
    colours: 4,
}


def ask_one(rng: random.Random, view: View) -> Turn:
    """A random question about one picture."""
    while True:
        turn = rng.choices(tuple(ASKERS), tuple(ASKERS.values()))[0](rng, view)
        if turn is not None:
            return turn
