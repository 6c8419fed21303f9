"""Questions about pictures with their true answers.

Knows scenes and sentences; each question carries the check of its meaning.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from . import meaning
from .phrases import NUMBER_WORDS, Turn, article, counted, expand, listed
from .pictures import COLOURS, COLUMNS, FORMS, ROWS, Scene, Shape

Asker = Callable[[random.Random, "View"], Turn | None]
PLACES = tuple(f"{row} {column}".strip() or "middle" for row in ROWS for column in COLUMNS)
CANNOT_SEE = (
    "I cannot make out simple shapes in this picture. I am a tiny demo model: I know circles, squares, "
    "triangles and stars on a plain ground."
)


@dataclass(frozen=True)
class View:
    """A scene and the words that point to its picture: "the picture", "the second picture"."""

    scene: Scene
    which: str = "the picture"

    @property
    def suffix(self) -> str:
        """Added to a question that must say which of two pictures it means."""
        return "" if self.which == "the picture" else f" in {self.which}"


def at(place: str) -> str:
    """The place with its preposition: "at the top", "on the left", "in the middle"."""
    return f"{ {'left': 'on', 'right': 'on', 'middle': 'in'}.get(place, 'at') } the {place}"


def name(shape: Shape) -> str:
    """ "red circle"."""
    return f"{shape.colour} {shape.form}"


def found(shape: Shape) -> str:
    """ "a red circle at the top left"."""
    return f"{article(name(shape))} {at(shape.place)}"


def thought(view: View) -> str:
    """The brief look at the picture that precedes an answer when thinking is on."""
    seen = "; ".join(f"{name(shape)}, {shape.place}" for shape in view.scene.shapes) or "no shapes"
    return f"I look at {view.which}: {seen}."


def triples(scene: Scene) -> set[meaning.Named]:
    """What a full description must name."""
    return {(shape.colour, shape.form, shape.place) for shape in scene.shapes}


def describe(rng: random.Random, view: View) -> Turn:
    """All shapes with their places."""
    shapes, which = view.scene.shapes, view.which
    patterns = [
        f"{{what|which}} {{shapes|forms|figures}} {{are there|do you see|can you see|are|can you find}} in {which}?",
        f"{{describe|please describe|can you describe|explain|look at|tell me about}} {which}{{.|}}",
        f"what {{is|can you see|do you see|is there|is shown}} in {which}?",
        f"what does {which} show?",
        f"list {{all|the|}} shapes in {which}.",
    ]
    if which == "the picture":
        patterns += [
            "{what|which} {shapes|forms|figures|objects|things} {are there|do you see|can you see}?",
            "what {do you see|can you see|is this|is here|is it|is that}{?|, please?| here?}",
            "",
            "describe {this|it|the image|this image|this picture|what you see}.",
            "what is {in|on} {this|my|the} {picture|image|photo}?",
            "what's {in|on} {this|the} {picture|image|photo}?",
            "{tell me what you see|look|and this|and what about this|what about this one}?",
        ]
    answer = (
        f"I see {listed([found(shape) for shape in shapes])}."
        if shapes
        else "I see no shapes: the picture is empty."
    )
    truth = triples(view.scene)
    return Turn(
        expand(rng, rng.choice(patterns)),
        answer,
        thought(view),
        check=lambda said: meaning.shapes_named(said) == truth,
    )


def how_many(rng: random.Random, view: View) -> Turn:
    """The number of shapes: all, of one colour or of one form."""
    kind = rng.choice(("shape", "shape", "colour", "form"))
    noun, number = "shape", len(view.scene.shapes)
    if kind == "colour":
        colour = rng.choice([shape.colour for shape in view.scene.shapes] * 2 + list(COLOURS))
        noun, number = f"{colour} shape", sum(shape.colour == colour for shape in view.scene.shapes)
    elif kind == "form":
        noun = rng.choice([shape.form for shape in view.scene.shapes] * 2 + list(FORMS))
        number = sum(shape.form == noun for shape in view.scene.shapes)
    things = f"{{{noun}s|{noun}s|objects|figures|things}}" if kind == "shape" else f"{noun}s"
    question = expand(
        rng,
        rng.choice(
            (
                f"how many {things} {{are there|do you see|can you see|are}}{view.suffix}?",
                f"{{count the|number of}} {noun}s{view.suffix}{{.|?}}",
                f"how many {things}{view.suffix or ' {in|on} {the picture|the image}'}?",
            )
        ),
    )
    answer = f"There {'is' if number == 1 else 'are'} {counted(number, noun)}{view.suffix}."
    return Turn(
        question,
        answer,
        thought(view),
        check=lambda said: meaning.numbers_named(said)[:1] == [number],
    )


def only(view: View, form: str) -> Shape | None:
    """The shape of that form if there is exactly one."""
    same = [shape for shape in view.scene.shapes if shape.form == form]
    return same[0] if len(same) == 1 else None


def colour_of(rng: random.Random, view: View) -> Turn | None:
    """The colour of a form that occurs once, or not at all."""
    asked = rng.choice([shape.form for shape in view.scene.shapes] * 6 + list(FORMS))
    shape = only(view, asked)
    if shape is None and any(other.form == asked for other in view.scene.shapes):
        return None
    question = expand(
        rng,
        rng.choice(
            (
                f"{{what|which}} {{colour|color}} {{is|has}} the {asked}{view.suffix}?",
                f"what is the {{colour|color}} of the {asked}{view.suffix}?",
                f"{{tell me the|name the}} {{colour|color}} of the {asked}{view.suffix}.",
            )
        ),
    )
    if shape is None:
        return Turn(
            question, f"There is no {asked}{view.suffix}.", thought(view), check=meaning.is_no
        )
    truth = {shape.colour}
    answer = f"The {asked}{view.suffix} is {shape.colour}."
    return Turn(
        question, answer, thought(view), check=lambda said: meaning.colours_named(said) == truth
    )


def form_of(rng: random.Random, view: View) -> Turn | None:
    """The form of a colour that occurs once."""
    colours = [shape.colour for shape in view.scene.shapes]
    single = [shape for shape in view.scene.shapes if colours.count(shape.colour) == 1]
    if not single:
        return None
    shape = rng.choice(single)
    question = expand(
        rng,
        rng.choice(
            (
                f"{{what|which}} {{shape|form}} is {{{shape.colour}|the {shape.colour} one}}{view.suffix}?",
                f"what is the {shape.colour} {{shape|thing|object|one}}{view.suffix}?",
                f"{{what|which}} {{shape|form}} {{has the {{colour|color}}|is of {{colour|color}}}} {shape.colour}{view.suffix}?",
            )
        ),
    )
    answer = f"The {shape.colour} shape{view.suffix} is {article(shape.form)}."
    return Turn(
        question,
        answer,
        thought(view),
        check=lambda said: {n[1] for n in meaning.shapes_named(said)} == {shape.form},
    )


def where(rng: random.Random, view: View) -> Turn:
    """The place of a shape, which may be absent."""
    if view.scene.shapes and rng.random() < 0.88:
        shape = rng.choice(view.scene.shapes)
    else:
        shape = Shape(rng.choice(tuple(COLOURS)), rng.choice(FORMS), 0, 0)
    here = [other for other in view.scene.shapes if name(other) == name(shape)]
    asked = shape.form if only(view, shape.form) and rng.random() < 0.4 else name(shape)
    question = expand(
        rng,
        rng.choice(
            (
                f"{{where|where exactly|in which place}} is the {asked}{view.suffix}?",
                f"{{where do you see|where can i find|find|locate}} the {asked}{view.suffix}?",
                f"{{what is the position of|tell me where}} the {asked}{view.suffix}{{ is|}}?",
            )
        ),
    )
    if not here:
        return Turn(
            question, f"There is no {asked}{view.suffix}.", thought(view), check=meaning.is_no
        )
    truth = {here[0].place}
    answer = f"The {name(here[0])} is {at(here[0].place)}{view.suffix and f' of {view.which}'}."
    return Turn(
        question, answer, thought(view), check=lambda said: meaning.places_named(said) == truth
    )


def what_at(rng: random.Random, view: View) -> Turn:
    """What lies at a place, which may be empty."""
    taken = {shape.place: shape for shape in view.scene.shapes}
    place = rng.choice(list(taken) * 5 + list(PLACES))
    side = f"{{side|}}" if place in ("left", "right") else f"{{corner|}}" if " " in place else ""
    spot = at(place).replace(" middle", " {middle|centre|center}")
    question = expand(
        rng,
        rng.choice(
            (
                f"{{what|what shape|which shape}} is {spot} {side}{view.suffix and f' of {view.which}'}?",
                f"what {{do you see|can you see}} {spot} {side}{view.suffix and f' of {view.which}'}?",
                f"what {{is there|'s}} {spot}{view.suffix and f' of {view.which}'}?".replace(
                    " '", "'"
                ),
            )
        ),
    )
    if place not in taken:
        return Turn(question, f"There is nothing {at(place)}.", thought(view), check=meaning.is_no)
    truth = {(taken[place].colour, taken[place].form)}
    answer = f"There is {found(taken[place])}."
    return Turn(
        question,
        answer,
        thought(view),
        check=lambda said: {n[:2] for n in meaning.shapes_named(said)} == truth,
    )


def is_there(rng: random.Random, view: View) -> Turn:
    """Yes or no, with what was found."""
    shapes = view.scene.shapes
    by_form = rng.random() < 0.3
    if shapes and rng.random() < 0.5:
        wanted = rng.choice(shapes)
    elif shapes and rng.random() < 0.5:
        near = rng.choice(shapes)
        wanted = rng.choice(
            (
                Shape(rng.choice(tuple(COLOURS)), near.form, 0, 0),
                Shape(near.colour, rng.choice(FORMS), 0, 0),
            )
        )
    else:
        wanted = Shape(rng.choice(tuple(COLOURS)), rng.choice(FORMS), 0, 0)
    asked = wanted.form if by_form else name(wanted)
    hits = [
        shape
        for shape in shapes
        if shape.form == wanted.form and (by_form or shape.colour == wanted.colour)
    ]
    question = expand(
        rng,
        rng.choice(
            (
                f"is there {{{article(asked)}|any {asked}}}{view.suffix}?",
                f"{{do|can}} you see {article(asked)}{view.suffix}?",
                f"{{does {view.which} {{have|show|contain}} {article(asked)}?|is {article(asked)} {{in {view.which}|there}}?}}"
                if not view.suffix
                else f"does {view.which} {{have|show|contain}} {article(asked)}?",
            )
        ),
    )
    answer = (
        f"Yes, I see {listed([found(shape) for shape in hits])}."
        if hits
        else f"No, I see no {asked}{view.suffix}."
    )
    return Turn(question, answer, thought(view), check=meaning.is_yes if hits else meaning.is_no)


def colours(rng: random.Random, view: View) -> Turn | None:
    """The colours of the shapes, in reading order."""
    seen = list(dict.fromkeys(shape.colour for shape in view.scene.shapes))
    if not seen:
        return None
    question = expand(
        rng,
        rng.choice(
            (
                f"{{what|which}} {{colours|colors}} {{do you see|are there|can you see}}{view.suffix}?",
                f"{{what|which}} {{colours|colors}} {{are|have}} the shapes{view.suffix}?",
                f"{{name|list|tell me}} the {{colours|colors}}{view.suffix}.",
            )
        ),
    )
    return Turn(
        question,
        f"I see {listed(seen)}{view.suffix}.",
        thought(view),
        check=lambda said: meaning.colours_named(said) == set(seen),
    )


def background(rng: random.Random, view: View) -> Turn | None:
    """The colour of the ground, where it has a plain name."""
    ground = view.scene.ground
    if ground == "pastel":
        return None
    question = expand(
        rng,
        rng.choice(
            (
                f"{{what|which}} {{colour|color}} {{is|has}} the {{background|ground}}{view.suffix}?",
                f"what is the {{colour|color}} of the {{background|ground}}{view.suffix}?",
            )
        ),
    )
    return Turn(
        question,
        f"The background is {ground}.",
        f"I look at the ground of {view.which}: {ground}.",
        check=lambda said: ground in meaning.words(said),
    )


ABOUT_ONE: tuple[tuple[Asker, int], ...] = (
    (describe, 30),
    (how_many, 16),
    (colour_of, 10),
    (form_of, 6),
    (where, 12),
    (what_at, 10),
    (is_there, 9),
    (colours, 4),
    (background, 3),
)


def ask_one(rng: random.Random, view: View) -> Turn:
    """A random question about one picture."""
    askers, weights = zip(*ABOUT_ONE, strict=True)
    while True:
        turn: Turn | None = rng.choices(askers, weights)[0](rng, view)
        if turn is not None:
            return turn


def ask_two(rng: random.Random, first: Scene, second: Scene) -> Turn:
    """A question about two pictures of one message."""
    views = (View(first, "the first picture"), View(second, "the second picture"))
    both = " ".join(thought(view) for view in views)
    kind = rng.random()
    if kind < 0.4:
        return ask_one(rng, rng.choice(views))
    if kind < 0.65:
        question = expand(
            rng,
            "{what is in {these|the|the two|both} {pictures|images}?|describe {both|the two|these} {pictures|images}.|what do you see in {these|both} {pictures|images}?|what do you see?|describe them.|compare {the|these} {two|} pictures.}",
        )
        truth = triples(first) | triples(second)
        parts = [
            f"{view.which.capitalize()} shows {listed([found(s) for s in view.scene.shapes]) if view.scene.shapes else 'no shapes'}."
            for view in views
        ]
        return Turn(
            question,
            " ".join(parts),
            both,
            check=lambda said: (
                meaning.shapes_named(said) == truth and _in_order(said, first, second)
            ),
        )
    if kind < 0.85:
        single = [
            (view, s)
            for view, other in (views, views[::-1])
            for s in view.scene.shapes
            if name(s) not in map(name, other.scene.shapes)
        ]
        if single:
            view, shape = rng.choice(single)
            question = expand(
                rng,
                f"{{which|in which}} {{picture|image}} {{has|shows|contains|is|do you see}} the {name(shape)}{{ in|}}?",
            )
            word = view.which.split()[1]
            return Turn(
                question,
                f"The {name(shape)} is in {view.which}.",
                both,
                check=lambda said: {"first", "second"} & set(meaning.words(said)) == {word},
            )
    one, two = len(first.shapes), len(second.shapes)
    if rng.random() < 0.4:
        question = expand(
            rng, "how many shapes are there {in total|altogether|in both pictures|in both}?"
        )
        return Turn(
            question,
            f"There are {NUMBER_WORDS[one + two]} shapes in total.".replace(
                "are one shapes", "is one shape"
            ),
            both,
            check=lambda said: meaning.numbers_named(said)[:1] == [one + two],
        )
    question = expand(
        rng, "which {picture|image|one} {has|shows|contains} more {shapes|figures|objects}?"
    )
    if one == two:
        return Turn(
            question,
            f"Both pictures have {counted(one, 'shape')}.",
            both,
            check=lambda said: "both" in meaning.words(said),
        )
    winner = "first" if one > two else "second"
    answer = f"The {winner} picture has more shapes: {NUMBER_WORDS[max(one, two)]} against {NUMBER_WORDS[min(one, two)]}."
    return Turn(
        question,
        answer,
        both,
        check=lambda said: {"first", "second"} & set(meaning.words(said)) == {winner},
    )


def _in_order(said: str, first: Scene, second: Scene) -> bool:
    """Whether each sentence of a description of two pictures names the shapes of its own picture."""
    head, _, tail = said.partition("econd picture")
    return meaning.shapes_named(head) == triples(first) and meaning.shapes_named(tail) == triples(
        second
    )


ZH_COLOURS = dict(zip(COLOURS, ("红色", "绿色", "蓝色", "黄色", "橙色", "紫色"), strict=True))
ZH_FORMS = dict(zip(FORMS, ("圆形", "正方形", "三角形", "星形"), strict=True))
ZH_PLACES = dict(
    zip(
        PLACES,
        ("左上角", "上方", "右上角", "左边", "中间", "右边", "左下角", "下方", "右下角"),
        strict=True,
    )
)
ZH_NUMBERS = ("零", "一", "两", "三", "四")


def ask_chinese(rng: random.Random, scene: Scene) -> Turn:
    """Description or count in Chinese."""
    shapes = scene.shapes
    seen = "，".join(
        f"{ZH_PLACES[s.place]}有一个{ZH_COLOURS[s.colour]}的{ZH_FORMS[s.form]}" for s in shapes
    )
    look = f"我看图片：{seen or '没有图形'}。"
    if rng.random() < 0.35:
        question = rng.choice(("图片里有几个图形？", "有多少个图形？", "图里一共有几个图形？"))
        return Turn(
            question,
            f"图片里有{ZH_NUMBERS[len(shapes)]}个图形。",
            look,
            check=lambda said: f"{ZH_NUMBERS[len(shapes)]}个" in said,
        )
    question = rng.choice(
        ("图片里有什么？", "你看到了什么？", "描述一下这张图片。", "图里有什么？", "请描述图片。")
    )
    truth = {
        f"{ZH_PLACES[s.place]}有一个{ZH_COLOURS[s.colour]}的{ZH_FORMS[s.form]}" for s in shapes
    }
    return Turn(
        question,
        f"{seen}。" if shapes else "图片里没有图形。",
        look,
        check=lambda said: set(said.strip("。").split("，")) == truth if truth else "没有" in said,
    )
