"""A formula's LaTeX as Unicode, where that says the same and can be read.

There is none for the rest, such as a matrix, and then its source is shown: a fraction never loses
its brackets, a letter never its font. Pure; the table of symbols is loaded with the first formula.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

_SIGN: Final = re.compile(r"\\[A-Za-z]+\*?(?:\s+(?![-+/|*]))?|\\.|\s+|.", re.DOTALL)
_LONGEST: Final = 2_000
_DEEPEST: Final = 12


@lru_cache(maxsize=512)
def readable(formula: str) -> str | None:
    """The formula in Unicode, perhaps on several lines; None where its source says it better."""
    if len(formula) > _LONGEST:
        return None
    try:
        text = _Reader(formula).whole()
    except _UnreadableError:
        return None
    lines = (re.sub(" +", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line) or None


class _UnreadableError(Exception):
    """There is no Unicode for a part of the formula, or none that can be read."""


Kind = Literal["one", "group", "open", "close", "operator", "space", "function", "fraction",
               "root", "script", "line"]  # fmt: skip


class _Part(NamedTuple):
    text: str
    kind: Kind


_TIGHT: Final[frozenset[Kind]] = frozenset(
    {"one", "group", "open", "function", "fraction", "root", "script"}
)
_SINGLE: Final = re.compile(r"\d+(\.\d+)?|[d∂√]?[^\W\d_][₀-₉⁰¹²³⁴-⁹ᵢⱼₙₖ′]*")
_PRODUCT: Final = re.compile(r"∂?[^\W_][\w₀-₉⁰¹²³⁴-⁹′]*|-?\d+")
_AROUND: Final = re.compile(r" *([^\w\s]) *")
_VULGAR: Final = {
    "1/2": "½", "1/3": "⅓", "2/3": "⅔", "1/4": "¼", "3/4": "¾", "1/5": "⅕", "1/6": "⅙", "1/8": "⅛",
}  # fmt: skip
_ROOTS: Final = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_UPPER: Final = str.maketrans(
    "0123456789+-=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVWβγδ",
    "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᵝᵞᵟ",
)
_LOWER: Final = str.maketrans(
    "0123456789+-=()aehijklmnoprstuvxβγρφχ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ"
)
_ALONE: Final = frozenset("∞∂∇∑∏∫∬∭∮∐√∀∃∅¬⋃⋂⊤⊥#♯")
_MORE_OPERATORS: Final = frozenset("∣·⋅→←↔⇒⇐⇔↦⟶⟵⟹⟺∘•⋆")
_MORE: Final = {
    "ne": "≠", "iff": "⇔", "implies": "⇒", "impliedby": "⇐", "gets": "←", "degree": "°", "Re": "ℜ",
    "Im": "ℑ", "|": "‖", "lvert": "|", "rvert": "|", "lVert": "‖", "rVert": "‖", "colon": ":",
    "backslash": "\\", "land": "∧", "lor": "∨", "lnot": "¬", "le": "≤", "ge": "≥", "ll": "≪",
    "gg": "≫", "dotsc": "…", "dotsb": "⋯", "vdots": "⋮", "ddots": "⋱", "vert": "|", "Vert": "‖",
    "%": "%", "mid": "∣", "blacksquare": "■", "square": "□", "checkmark": "✓",
    "triangle": "△", "angle": "∠", "prime": "′",
    "therefore": "∴", "because": "∵", "mod": "mod", "bmod": "mod", "phi": "φ", "varphi": "φ",
}  # fmt: skip
_FUNCTIONS: Final = frozenset(
    ["arccos", "arcsin", "arctan", "arg", "argmax", "argmin", "cos", "cosh", "cot", "coth", "csc",
     "deg", "det", "dim", "exp", "gcd", "hom", "inf", "ker", "lg", "lim", "liminf", "limsup", "ln",
     "log", "max", "min", "Pr", "sec", "sgn", "sin", "sinh", "softmax", "sup", "tan", "tanh"]
)  # fmt: skip
_SKIPPED: Final = frozenset(
    ["left", "right", "middle", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr",
     "biggl", "biggr", "Biggl", "Biggr", "limits", "nolimits", "displaystyle", "textstyle",
     "scriptstyle", "nonumber", "notag", "!"]
)  # fmt: skip
_SPACES: Final = frozenset([",", ";", ":", " ", "quad", "qquad", "thinspace", "enspace"])
_PLAIN: Final = frozenset(["text", "mathrm", "textrm", "mbox", "textnormal", "mathsf", "texttt"])
_FONTS: Final = {
    "mathbb": "DOUBLE-STRUCK", "mathbf": "BOLD", "bm": "BOLD", "boldsymbol": "BOLD",
    "mathcal": "SCRIPT", "mathscr": "SCRIPT", "mathfrak": "FRAKTUR",
}  # fmt: skip
_NAMED: Final = {"mathfrak": "BLACK-LETTER"}
_ACCENTS: Final = {
    "hat": "\u0302", "widehat": "\u0302", "bar": "\u0304", "overline": "\u0304",
    "tilde": "\u0303", "widetilde": "\u0303", "vec": "\u20d7", "dot": "\u0307", "ddot": "\u0308",
}  # fmt: skip
_FRACTIONS: Final = frozenset(["frac", "dfrac", "tfrac", "cfrac"])
_IN_LINES: Final = frozenset(
    [
        "aligned",
        "align",
        "align*",
        "gather",
        "gather*",
        "gathered",
        "equation",
        "equation*",
        "split",
    ]
)


class _Reader:
    """Reads a formula from left to right, each thing in it to a part."""

    def __init__(self, formula: str) -> None:
        self._signs: list[str] = _SIGN.findall(formula.strip())
        self._at = self._depth = 0

    def whole(self) -> str:
        """All of it. Raises _UnreadableError."""
        return _joined(self._parts("", in_lines=True))

    def _next(self) -> str:
        if self._at >= len(self._signs):
            raise _UnreadableError
        self._at += 1
        return self._signs[self._at - 1]

    def _parts(self, stop: str, *, in_lines: bool = False) -> list[_Part]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _UnreadableError
        parts: list[_Part] = []
        while stop or self._at < len(self._signs):
            sign = self._next()
            if stop and sign.rstrip() == stop:
                break
            if sign in {"^", "_"}:
                base = parts.pop() if parts and parts[-1].kind != "space" else _Part("", "one")
                parts.append(_with_script(base, sign, self._argument()))
            elif sign == "&" and in_lines:
                continue
            elif sign.startswith("\\\\") and in_lines:
                parts.append(_Part("\n", "line"))
            else:
                parts.append(self._part(sign))
        self._depth -= 1
        return parts

    def _part(self, sign: str) -> _Part:
        if sign.isspace():
            return _Part(" ", "space")
        if sign.startswith("\\"):
            return self._macro(sign[1:].strip() or " ")
        if sign == "{":
            parts = [part for part in self._parts("}") if part.kind != "space"]
            return parts[0] if len(parts) == 1 else _Part(_joined(parts), "group")
        if sign in "}&%#$":
            raise _UnreadableError
        return _symbol({"'": "′", "~": " "}.get(sign, sign))

    def _argument(self) -> str:
        """What a macro or a script is about, as text."""
        sign = self._next()
        return self._argument() if sign.isspace() else _joined([self._part(sign)]).strip()

    def _raw(self) -> str:
        """The letters of an argument as they are written."""
        sign = self._next()
        if sign != "{":
            return sign
        letters = ""
        while (sign := self._next()) != "}":
            if sign[0] in "\\{$^_":
                raise _UnreadableError
            letters += sign
        return letters

    def _macro(self, name: str) -> _Part:
        known: Callable[[str], _Part] | None = next(
            (read for names, read in self._readers() if name in names), None
        )
        if known is not None:
            return known(name)
        if name in _FUNCTIONS:
            return _Part(name, "function")
        symbol = _MORE.get(name) or _from_library(name)
        if symbol is None:
            raise _UnreadableError
        return _Part(symbol, "operator") if symbol == "mod" else _symbol(symbol)

    def _readers(self) -> Sequence[tuple[Sequence[str] | frozenset[str] | dict[str, str],
                                         Callable[[str], _Part]]]:  # fmt: skip
        return (
            (_SPACES, lambda _: _Part(" ", "space")),
            (_SKIPPED, self._skipped),
            (_FRACTIONS, lambda _: _fraction(self._argument(), self._argument())),
            (("sqrt",), self._root),
            (_PLAIN, lambda _: _Part(self._raw(), "group")),
            (("operatorname",), lambda _: _Part(self._raw(), "function")),
            (_FONTS, lambda name: _Part(_in_font(self._raw(), name), "one")),
            (_ACCENTS, self._accent),
            (("begin",), self._environment),
            (("boxed",), lambda _: _Part(f"[{self._argument()}]", "group")),
            (("tag",), lambda _: _Part(f"  ({self._raw()})", "group")),
            (("pmod",), lambda _: _Part(f" (mod {self._argument()})", "group")),
        )

    def _skipped(self, _: str) -> _Part:
        if self._signs[self._at : self._at + 1] == ["."]:
            self._at += 1
        return _Part("", "space")

    def _root(self, _: str) -> _Part:
        degree = ""
        if self._signs[self._at : self._at + 1] == ["["]:
            self._at += 1
            degree = _joined(self._parts("]")).strip()
        if degree not in _ROOTS:
            raise _UnreadableError
        return _Part(_ROOTS[degree] + _bracketed(self._argument(), _SINGLE), "root")

    def _accent(self, name: str) -> _Part:
        letter = self._argument()
        if len(letter) != 1:
            raise _UnreadableError
        return _Part(unicodedata.normalize("NFC", letter + _ACCENTS[name]), "one")

    def _environment(self, _: str) -> _Part:
        if self._raw() not in _IN_LINES:
            raise _UnreadableError
        lines = _joined(self._parts("\\end", in_lines=True))
        self._raw()
        return _Part(lines, "group")


def _symbol(text: str) -> _Part:
    category = unicodedata.category(text[0])
    kind: Kind = "one"
    if category == "Ps":
        kind = "open"
    elif category == "Pe" or text in "!,;:.|+-*/":
        kind = "close"
    elif text not in _ALONE and (category == "Sm" or text in _MORE_OPERATORS):
        kind = "operator"
    return _Part(text, kind)


def _with_script(base: _Part, mark: str, script: str) -> _Part:
    if base.kind in {"group", "fraction"} and not _SINGLE.fullmatch(base.text):
        base = _Part(f"({base.text})", "one")
    table = _UPPER if mark == "^" else _LOWER
    script = _AROUND.sub(r"\1", script)
    if mark == "^" and script in {"∘", "′", "″"}:
        raised = {"∘": "°"}.get(script, script)
    elif script and all(ord(letter) in table for letter in script):
        raised = script.translate(table)
    elif "^(" in script or "_(" in script or "\n" in script or not script:
        raise _UnreadableError
    else:
        raised = mark + (script if len(script) == 1 else f"({script})")
        return _Part(base.text + raised, "script")
    return _Part(base.text + raised, base.kind if base.kind in {"function", "close"} else "one")


def _fraction(above: str, below: str) -> _Part:
    simple = _VULGAR.get(f"{above}/{below}")
    if simple is not None:
        return _Part(simple, "one")
    if above.count("/") + below.count("/") > 2 or "\n" in above + below:
        raise _UnreadableError
    return _Part(f"{_bracketed(above, _PRODUCT)}/{_bracketed(below, _SINGLE)}", "fraction")


def _bracketed(text: str, plain: re.Pattern[str]) -> str:
    if not text:
        raise _UnreadableError
    return text if plain.fullmatch(text) else f"({text})"


def _joined(parts: Sequence[_Part]) -> str:
    """The parts as one text, with the brackets and spaces that tell them apart."""
    text = ""
    for place, part in enumerate(parts):
        before, after = parts[:place], parts[place + 1 :]
        follower = next((it for it in after if it.kind != "space"), _Part("", "line"))
        binds = follower.kind in _TIGHT
        touching = after[0].kind if after else "line"
        match part.kind:
            case "operator":
                text += f" {part.text} "
            case "function":
                gap = " " if before and before[-1].kind in {"one", "close", "group"} else ""
                gap = "" if text.endswith(("(", "[", "{", "-", "+", "/")) else gap
                text += f"{gap}{part.text}{' ' if touching in _TIGHT - {'open'} else ''}"
            case "fraction" if binds or text.rstrip().endswith("/"):
                text += f"({part.text})"
            case "root" if (binds or follower.text == "/") and not part.text.endswith(")"):
                text += f"{part.text[0]}({part.text[1:]})"
            case "script" if touching in _TIGHT - {"open"}:
                text += f"{part.text} "
            case _:
                text += part.text
    return text


def _in_font(letters: str, name: str) -> str:
    found = ""
    for letter in letters:
        kind = "CAPITAL" if letter.isupper() else "SMALL"
        what = f"{kind} {letter.upper()}" if letter.isalpha() else unicodedata.name(letter, "")
        font = _FONTS[name]
        names = (f"MATHEMATICAL {font} {what}", f"{_NAMED.get(name, font)} {what}")
        try:
            found += next(filter(None, (_looked_up(it) for it in names)))
        except StopIteration:
            raise _UnreadableError from None
    return found


def _looked_up(name: str) -> str:
    try:
        return unicodedata.lookup(name)
    except KeyError:
        return ""


def _from_library(name: str) -> str | None:
    """What the library has for a macro without arguments."""
    from pylatexenc.latex2text import get_default_latex_context_db  # noqa: PLC0415

    spec = get_default_latex_context_db().get_macro_spec(name)
    found = None if spec is None else spec.simplify_repl
    return found if isinstance(found, str) and len(found) == 1 and found != "%" else None
