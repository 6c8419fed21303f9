"""What a chat template lets one choose, found out from the template itself: how hard the model
thinks, whether the thoughts of earlier answers stay in the prompt, who gives instructions.

A template names what it wants to be given, and compares it with the words that it knows; which of
them it takes is seen by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from jinja2 import Environment, TemplateError, meta, nodes

from q35chat.chat.values import EFFORT, PRESERVE, TemplateOffers
from q35chat.errors import BundleError

_TOLD: Final = "Answer in verse."

Render = Callable[[list[dict[str, str]], Mapping[str, object]], str]
"""Messages and variables as the template writes them. Raises BundleError where it refuses."""


def offers_of(template: str, render: Render) -> TemplateOffers:
    """What `template`, written out by `render`, lets one choose."""
    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)  # noqa: S701
    try:
        tree = environment.parse(template)
    except TemplateError:  # tags that only transformers knows
        return TemplateOffers(instructor=_instructor(render))
    words = dict.fromkeys(_compared(tree))
    wanted = meta.find_undeclared_variables(tree)  # folds what is constant in the tree
    efforts = tuple(word for word in words if EFFORT in wanted and _takes(render, word))
    return TemplateOffers(efforts, PRESERVE in wanted, _instructor(render))


def _compared(tree: nodes.Template) -> Iterator[str]:
    """The words that the template compares an effort with."""
    for comparison in tree.find_all(nodes.Compare):
        if any(EFFORT in name.name for name in comparison.find_all(nodes.Name)):
            for word in comparison.find_all(nodes.Const):
                if isinstance(word.value, str) and word.value:
                    yield word.value


def _takes(render: Render, effort: str) -> bool:
    try:
        render([{"role": "user", "content": "a"}], {EFFORT: effort})
    except BundleError:
        return False
    return True


def _instructor(render: Render) -> str:
    """The role whose message the template writes before a question."""
    for role in ("system", "developer"):
        messages = [{"role": role, "content": _TOLD}, {"role": "user", "content": "a"}]
        try:
            if _TOLD in render(messages, {}):
                return role
        except BundleError:
            continue
    return "system"
