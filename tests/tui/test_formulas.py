"""Formulas are Unicode where that says the same, else their source."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from q35chat.tui.markdown.formulas import readable
from q35chat.tui.markdown.layout import lay_out
from q35chat.tui.markdown.selection import selected_source


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (r"x^2+y_1", "x²+y₁"),
        (r"2\pi r \leq \alpha\beta", "2πr ≤ αβ"),
        (r"\sum_{i=1}^{n} x_i", "∑ᵢ₌₁ⁿ xᵢ"),
        (r"\frac{-b \pm \sqrt{b^2-4ac}}{2a}", "(-b ± √(b²-4ac))/(2a)"),
        (r"\text{softmax}\left(\frac{QK^T}{\sqrt{d_k}}\right)V", "softmax(QKᵀ/√dₖ)V"),
        (r"\lim_{x \to 0} \frac{\sin x}{x} = 1", "lim_(x→0) (sin x)/x = 1"),
        (r"\forall x \in \mathbb{R}: x^2 \geq 0", "∀x ∈ ℝ: x² ≥ 0"),
        (r"90^\circ, f'(x), \vec{v}, \mathbf{x}", "90°, f′(x), v\u20d7, 𝐱"),
        (r"\begin{aligned} a &= b \\ &= c \end{aligned}", "a = b\n= c"),
        (r"100\%", "100%"),
    ],
)
def test_a_formula_is_shown_in_unicode(formula: str, shown: str) -> None:
    assert readable(formula) == shown


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (r"\frac{a+b}{c}", "(a+b)/c"),
        (r"\frac{a}{b}x", "(a/b)x"),
        (r"a/\frac{b}{c}", "a/(b/c)"),
        (r"\sqrt{2}x", "√(2)x"),
        (r"\frac{\sqrt{x}}{2}", "(√x)/2"),
        (r"{ab}^2", "(ab)²"),
        (r"e^{x,y}z", "e^(x,y) z"),
        (r"x_{b}y", "x_b y"),
        (r"\begin{pmatrix} a & b \end{pmatrix}", None),
        (r"\binom{n}{k}", None),
        (r"\unknown{x}", None),
        (r"\hat{xy}", None),
        (r"a % b", None),
        ("{" * 400, None),
    ],
)
def test_no_bracket_and_no_sign_is_lost_by_it(formula: str, shown: str | None) -> None:
    assert readable(formula) == shown


@given(st.lists(st.sampled_from(
    ["\\frac", "\\sqrt", "{", "}", "^", "_", "x", "1", " ", "\\\\", "&", "\\left", ".", "(",
     "\\begin{aligned}", "\\end{aligned}", "\\mathbb", "\\hat", "[", "]", "中", "\\"]
), max_size=40).map("".join))  # fmt: skip
@settings(max_examples=200, deadline=None)
@example("\\frac" * 300)
def test_any_formula_is_shown_somehow(formula: str) -> None:
    shown = readable(formula)
    assert shown is None or shown.strip()
    assert lay_out(f"${formula}$ and\n\n$$\n{formula}\n$$\n", 40)


def plain(source: str) -> str:
    return "\n".join(line.plain.rstrip() for line in lay_out(source, 60))


def test_formulas_stand_in_a_line_and_on_their_own() -> None:
    source = "So $x^2$ and \\(y_1\\):\n$$\na = b\n$$\nor\n\\[\n+ c\n\\]\nhere.\n"
    assert plain(source) == "So x² and y₁:\n\n  a = b\n\nor\n\n  + c\n\nhere."


@pytest.mark.parametrize(
    "source",
    [
        "It costs $5 and $10.",
        "echo $HOME/$USER",
        "from $5 to 10$ or US$ 3",
        "`$x^2$`",
        "$$\nnever closed",
    ],
)
def test_prices_variables_and_code_are_no_formulas(source: str) -> None:
    assert plain(source) == source.replace("`", "")


def test_escaped_brackets_are_brackets() -> None:
    assert plain(r"\[1\] and \(see below\)") == "[1] and (see below)"


def test_a_formula_that_cannot_be_shown_keeps_its_marks() -> None:
    assert plain(r"It is $\binom{n}{k}$.") == r"It is $\binom{n}{k}$."


def test_what_is_copied_of_a_formula_is_its_source() -> None:
    source = r"Let $x^2 \leq \frac{a}{b}$ be so."
    line = lay_out(source, 60)[0].plain
    at = line.index("≤")
    assert selected_source(source, 60, (0, at), (0, at + 1)) == r"x^2 \leq \frac{a}{b}"
    assert selected_source(source, 60, (0, 0), (0, len(line))) == source
