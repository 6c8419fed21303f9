"""Turns without pictures: questions about q35chat, things the demo does not know, counting, and memory.

`Facts` is what the user has told so far in a conversation; memory turns read and change it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from . import meaning
from .knowledge import (
    CHINESE,
    CHINESE_FALLBACK,
    ENGLISH,
    FALLBACK,
    FALLBACK_THOUGHT,
    NO_PICTURE,
    Topic,
)
from .phrases import Turn, expand, kept_for_measuring, made_up_word, typed

COUNT_LIMIT = 300
THINGS = """love|cats|dogs|the sea|spring|autumn|the moon|a dragon|my mother|money|music|football|bread|the weather|winter|a robot|time|space|
the sun|coffee|tea|history|physics|biology|politics|rain|mountains|trees|a king|the war|gravity|photosynthesis|black holes|evolution|democracy|
economics|inflation|the internet|computers|python|linux|rust|javascript|a recursive function|sorting|neural networks|quantum physics|cooking|pasta|pizza|
a birthday|my boss|a wedding|travel|paris|london|berlin|rome|china|japan|france|germany|italy|spain|india|brazil|canada|egypt|the president|
napoleon|einstein|shakespeare|mozart|plato|caesar|cars|planes|trains|ships|bicycles|health|sleep|headaches|vitamins|the brain|the heart|stars in the sky|
elephants|whales|bees|dinosaurs|chess|tennis|the olympics|movies|books|poetry|art|god|death|life|happiness|fear|work|school|maths|taxes""".replace(
    "\n", ""
).split("|")
UNKNOWN = (
    "{write|compose|make|create|give me} {a poem|a story|a song|a haiku|a joke|an essay|a letter|a short text|a limerick|a speech} about {thing}.",
    "{what is|what are|explain|define|tell me about|describe|what do you know about|what do you think of|give me facts about} {thing}{?|.|}",
    "what is the {capital|population|currency|president|language|history|area|flag} of {thing}?",
    "{who|when|where|why|how} {is|was|did|does|are|were|will} {thing}{| invented| born| work| begin| end| happen| made| win| die}?",
    "{translate|spell|rhyme|summarize|correct|rewrite} {thing}{| into french| into german| into spanish| in one sentence| for me| please}.",
    "{tell me|do you know} {a joke|a story|a secret|a riddle|something|something funny|the news|the date|the time|a fact|something interesting|a lie}{.|?}",
    "what {time|day|date|year} is it{| today| now}?",
    "{how is|what is} the weather{| today| tomorrow| in {thing}}?",
    "{write|give me|show me|fix|debug} {code|a program|a function|a script|a regex|a class|a query|some code} {for|about|with|that prints} {thing}.",
    "what is {number} {plus|minus|times|divided by|+|-|*|/} {number}?",
    "{number} {+|-|*|x|/} {number}{| =|=?|?}",
    "{solve|compute|calculate} {number} {+|-|*} {number}.",
    "{should i|can i|may i|how do i|how can i|how to} {buy|eat|learn|make|find|sell|cook|visit|forget|paint|build|fix|grow} {thing}?",
    "{recommend|suggest|find|book} {a book|a film|a restaurant|a hotel|a game|a song|a recipe|a flight|a present} {for|about|with} {thing}.",
    "{i am|i feel|i'm} {sad|happy|tired|bored|hungry|lonely|angry|lost|in love|ill|afraid}{.|}",
    "{do you like|do you love|do you want|have you seen|do you eat|do you know} {thing}?",
    "{thing}",
    "{word} {word} {word}",
    "{word}",
    "{thing} {word} {thing}?",
    "what {is|does} {word}{| mean}?",
    "who is {word} {word}?",
    "where is {word}?",
    "{word} {word}?",
    "how {far|old|tall|fast|heavy|deep} is {thing}?",
    "{why|how come} {is|are|do|does} {thing} {blue|red|so hard|so big|important|exist|matter}?",
    "{is|are} {thing} {good|bad|real|dangerous|healthy|big}?",
    "{sing|dance|play|draw|paint|order|buy|call|email|open|close|print|delete} {thing}{| for me| please|}.",
    "{make|draw|generate|paint} {a picture|an image} of {thing}.",
    "{import|def|class|print|select|function} {word}",
    "say {word}.",
    "repeat {word} {word}.",
    "what is {my|your} {age|favourite film|opinion|job|plan|problem|shoe size|password|address}?",
    "{who won|who invented|who discovered|who wrote|who killed} {thing}?",
    "{what is|what's} {the meaning of life|the best language|the largest number|the longest river|the highest mountain|love|the answer}?",
    "{wie geht es dir|guten tag|bonjour|hola|was ist das|qui es-tu|comment ca va|que tal|danke|merci|ola}{?|!|}",
)


def about(rng: random.Random, topic: Topic, typo: bool = True) -> Turn:
    """A question on a topic."""
    question = expand(rng, rng.choice(topic.patterns))
    if typo and rng.random() < 0.15:
        question = (
            rng.choice(
                (
                    "please: ",
                    "hey, ",
                    "one question: ",
                    "so, ",
                    "and ",
                    "ok, ",
                    "now: ",
                    "tell me, ",
                    "excuse me, ",
                    "well, ",
                    "sorry, ",
                )
            )
            + question
        )
    return Turn(typed(rng, question) if typo else question, topic.answer, topic.thought)


def about_q35chat(rng: random.Random) -> Turn:
    """A question about q35chat or the demo, in English or (one in seven) in Chinese."""
    return (
        about(rng, rng.choice(CHINESE), typo=False)
        if rng.random() < 0.15
        else about(rng, rng.choice(ENGLISH))
    )


def unknown(rng: random.Random) -> Turn:
    """A question that the demo cannot answer."""
    if rng.random() < 0.1:
        return about(rng, CHINESE_FALLBACK, typo=False)
    pattern = rng.choice(UNKNOWN)
    while "{thing}" in pattern or "{word}" in pattern or "{number}" in pattern:
        pattern = pattern.replace("{thing}", rng.choice(THINGS), 1).replace(
            "{word}", made_up_word(rng), 1
        )
        pattern = pattern.replace("{number}", str(rng.randint(0, 10 ** rng.randint(1, 4))), 1)
    return Turn(typed(rng, expand(rng, pattern)), FALLBACK, FALLBACK_THOUGHT)


def no_picture(rng: random.Random) -> Turn:
    """A question about a picture when none was shown."""
    return Turn(typed(rng, expand(rng, rng.choice(NO_PICTURE[0]))), NO_PICTURE[1], NO_PICTURE[2])


def counting(rng: random.Random, longest: int = 30) -> Turn:
    """Count to N, from A to B, or down from N; the answer holds at most about `longest` numbers."""
    kind = rng.random()
    if kind < 0.04:
        asked = rng.randint(COUNT_LIMIT + 1, 20000)
        answer = f"That is too far for me: I count to {COUNT_LIMIT} at most."
        return Turn(
            typed(rng, f"count to {asked}."), answer, f"{asked} is more than {COUNT_LIMIT}."
        )
    if kind < 0.7:
        first, last = 1, rng.randint(1, min(longest, COUNT_LIMIT))
        question = f"{{count|please count|can you count|count from 1|count for me|count up}} to {last}{{.||, please}}"
    elif kind < 0.93:
        first = rng.randint(0, COUNT_LIMIT - 10)
        last = rng.randint(first + 1, min(COUNT_LIMIT, first + longest))
        question = f"{{count|please count|can you count}} from {first} to {last}{{.|}}"
    else:
        first, last = rng.randint(3, min(20, longest)), 1
        question = f"count {{down|backwards}} from {first}{{.| to 1.}}"
    numbers = range(first, last + 1) if last >= first else range(first, last - 1, -1)
    answer = " ".join(map(str, numbers))
    return Turn(
        typed(rng, expand(rng, question), slips=0),
        answer,
        f"I count from {first} to {last}.",
        check=lambda said: meaning.numbers_named(said) == list(numbers),
    )


NAMES = """Ada|Bob|Anna|Tom|Maria|John|Lena|Max|Sofia|Paul|Emma|Ben|Mia|Leo|Clara|Noah|Lucy|Sam|Nina|Oscar|Eva|Hugo|Ida|Felix|Rosa|Karl|Jane|Ali|Yuki|Wei|Li|Chen|
Priya|Omar|Fatima|Ivan|Olga|Pedro|Carmen|Luca|Giulia|Pierre|Marie|Hans|Greta|Sven|Astrid|Kofi|Amara|David|Sarah|Daniel|Laura|Peter|Alice|James|Robert|Linda|Michael|Susan|Alex|Chris|Kim|Taylor|
Mohammed|Aisha|Zoe|Victor|Irene|George|Helen|Martin|Julia|Simon|Eric|Grace|Henry|Ruth|Jack|Kate|Mary|Steve|Ahmed|Chloe|Xiaoming|Mei|Hana|Kenji""".replace(
    "\n", ""
).split("|")
FAVOURITES: dict[str, tuple[str, ...]] = {
    "colour": tuple(
        "red green blue yellow orange purple black white pink brown grey gold silver turquoise violet".split()
    ),
    "animal": tuple(
        "cat dog horse owl fox bear wolf tiger lion otter rabbit mouse eagle dolphin whale penguin turtle frog goat sheep koala panda snake elephant hedgehog".split()
    ),
    "city": tuple(
        "Paris London Berlin Rome Tokyo Beijing Madrid Vienna Oslo Lisbon Prague Cairo Delhi Boston Chicago Dublin Zurich Athens Seoul Lima Shanghai Shenzhen Sydney Toronto".split()
    ),
    "food": tuple(
        "pizza pasta rice soup bread cheese sushi curry salad noodles chocolate apples pancakes tofu dumplings fish potatoes bananas cake cherries".split()
    ),
}
TELL = {
    "name": (
        "my name is {value}{.|!|}",
        "{hi|hello|hey}{,|!|} my name is {value}{.|}",
        "{call me|you can call me|please call me|i am called} {value}{.|}",
        "{hi|hello|hey}, i am {value}{.|}",
        "i'm {value}{.|}",
        "the name is {value}{.|}",
        "remember my name: {value}{.|}",
    ),
    "number": (
        "{remember|please remember|keep in mind|note|memorize|save|do not forget|don't forget} {the number|this number:|the code|my number|number|} {value}{.|}",
        "my {lucky number|favourite number|number|code} is {value}{.|}",
        "the {number|code} is {value}{.|}",
    ),
    "favourite": (
        "my {favourite|favorite} {kind} is {value}{.|}",
        "{remember|note} {that|} my {favourite|favorite} {kind} is {value}{.|}",
        "{remember|note}: {favourite|favorite} {kind} {value}{.|}",
    ),
}
CHANGE = {
    "name": (
        "{actually|no|sorry|wait}, my name is {value}{.|}",
        "call me {value} {instead|now|from now on}{.|}",
        "my {new|real} name is {value}{.|}",
    ),
    "number": (
        "{actually|no|sorry|wait}, the number is {value}{.|}",
        "the new number is {value}{.|}",
        "{now|instead} remember {the number|} {value}{.|}",
        "{change|set} {the|my} number to {value}{.|}",
    ),
    "favourite": (
        "{actually|no|sorry|wait}, my {favourite|favorite} {kind} is {value}{.|}",
        "now my {favourite|favorite} {kind} is {value}{.|}",
    ),
}
ASK = {
    "name": (
        "what is my name?",
        "what's my name?",
        "{do you|can you} {remember|know|tell me|still know|recall|say} my name?",
        "who am i?",
        "{how|what} am i called?",
        "{tell me|say} my name{.|}",
        "which name did i {tell|give} you?",
        "what was my name{| again}?",
        "what is my name again?",
        "and my name?",
        "do you remember who i am?",
    ),
    "number": (
        "{what|which} number {did i tell you|did i say|should you remember|did i give you|was it|did i ask you to remember|did i mention}?",
        "what {was|is} {the|my} {number|lucky number|code}{| again}?",
        "{do you remember|can you recall|tell me|repeat|do you still know} {the|my} {number|code}{?|}",
        "and the number?",
        "what's {the|my} number?",
        "which number do you remember?",
        "what was the number i told you?",
    ),
    "favourite": (
        "what is my {favourite|favorite} {kind}?",
        "{which|what} {kind} {do i like best|do i like most|is my {favourite|favorite}}?",
        "{do you remember|can you recall|tell me|what was|do you know|what's} my {favourite|favorite} {kind}{?|}",
        "and my {favourite|favorite} {kind}?",
    ),
}


@dataclass
class Facts:
    """What the user has told: the latest value of each kind ("name", "number", "colour", …)."""

    told: dict[str, str] = field(default_factory=dict)
    older: dict[str, list[str]] = field(default_factory=dict)


def new_value(rng: random.Random, kind: str, measuring: bool) -> str:
    """A value of the kind; names and numbers of measuring and of training never coincide."""
    while True:
        if kind == "name":
            value = rng.choice(NAMES) if rng.random() < 0.45 else made_up_word(rng).capitalize()
        elif kind == "number":
            value = str(rng.randint(0, 10 ** rng.choice((2, 3, 4, 4, 5, 6))))
        else:
            return rng.choice(FAVOURITES[kind])
        if kept_for_measuring(value) == measuring:
            return value


def tell(
    rng: random.Random, facts: Facts, kind: str | None = None, measuring: bool = False
) -> Turn:
    """The user tells or changes a fact; the answer repeats it."""
    kind = kind or rng.choice(("name", "name", "name", "number", "number", "number", *FAVOURITES))
    value = new_value(rng, kind, measuring)
    group = kind if kind in TELL else "favourite"
    changes = kind in facts.told
    if changes:
        facts.older.setdefault(kind, []).append(facts.told[kind])
    facts.told[kind] = value
    patterns = CHANGE[group] if changes and rng.random() < 0.7 else TELL[group]
    pattern = rng.choice(patterns).replace("{kind}", "{colour|color}" if kind == "colour" else kind)
    question = expand(rng, pattern.replace("{value}", "\0"))
    question = typed(rng, question, slips=0.03) if question.count("\0") == 1 else question
    shown = value.lower() if question == question.lower() and rng.random() < 0.4 else value
    facts.told[kind] = shown
    if "\0" not in question:
        question = expand(rng, f"my {kind} is \0.")
    question = question.replace("\0", shown)
    answer = {"name": f"Nice to meet you, {shown}!", "number": f"I will remember {shown}."}.get(
        kind, f"Noted: your favourite {kind} is {shown}."
    )
    return Turn(question, answer, f"The user tells me the {kind}: {shown}. I remember it.")


def recall(rng: random.Random, facts: Facts, kind: str | None = None) -> Turn:
    """The user asks for a fact, told or not."""
    kind = kind or rng.choice([*facts.told] * 3 or ["name", "number", *FAVOURITES])
    if rng.random() < 0.08:
        kind = rng.choice(("name", "number", *FAVOURITES))
    group = kind if kind in ASK else "favourite"
    question = typed(
        rng,
        expand(
            rng,
            rng.choice(ASK[group]).replace(
                "{kind}", "{colour|color}" if kind == "colour" else kind
            ),
        ),
        slips=0.05,
    )
    whose = {"name": "your name", "number": "a number"}.get(kind, f"your favourite {kind}")
    if kind not in facts.told:
        return Turn(
            question,
            f"You have not told me {whose} yet.",
            f"The user did not tell me {whose}.",
            check=lambda said: "not" in meaning.words(said),
        )
    value, older = facts.told[kind], facts.older.get(kind, [])
    answer = {"name": f"Your name is {value}.", "number": f"The number is {value}."}.get(
        kind, f"Your favourite {kind} is {value}."
    )

    def right(said: str) -> bool:
        named = said.lower().replace(".", " ").replace("!", " ").replace(",", " ").split()
        return value.lower() in named and not any(
            old.lower() in named for old in older if old.lower() != value.lower()
        )

    return Turn(question, answer, f"The user told me: {value}.", check=right)


def shared_fact(rng: random.Random, facts: Facts, measuring: bool = False) -> Turn:
    """Two facts in one message."""
    name, number = new_value(rng, "name", measuring), new_value(rng, "number", measuring)
    for kind, value in (("name", name), ("number", number)):
        if kind in facts.told:
            facts.older.setdefault(kind, []).append(facts.told[kind])
        facts.told[kind] = value
    question = expand(
        rng,
        f"{{my name is|i am|call me}} {name} and {{my number is|the number is|remember the number|my lucky number is}} {number}{{.|}}",
    )
    return Turn(
        question[:1].upper() + question[1:],
        f"Nice to meet you, {name}! I will remember {number}.",
        f"The user tells me the name {name} and the number {number}.",
    )
