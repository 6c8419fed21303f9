"""What a template offers is found out from the template, passed to it, and offered to the user."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from q35chat.chat.prompt.template import ConversationTemplate
from q35chat.chat.prompt.tokenizer import ChatTokenizer, whole_characters
from q35chat.chat.values import ChatSettings, TemplateOffers, Turn
from q35chat.commands.options import check_offered
from q35chat.errors import UsageError
from q35chat.store.columns import Losses, settings_from_text, settings_to_text
from q35chat.tui.fields import thinking_fields
from tests.doubles.chat_model import GREEDY, PICTURE, ChatModel, user
from tests.support.tokenizer import CHAT_TEMPLATE

EFFORTS = ("high", "medium", "low")
RAISES = "{{ raise_exception('Unexpected effort ' ~ reasoning_effort) }}"
NEWER = (
    "{%- set level = reasoning_effort|default('high') -%}"
    "{%- set resolved_reasoning_effort = level -%}"
    "{%- if resolved_reasoning_effort not in ('high', 'medium', 'low') -%}"
    + RAISES
    + "{%- endif -%}"
    "{%- if resolved_reasoning_effort == 'low' -%}<|im_start|>system\\nBe brief.<|im_end|>\\n"
    "{%- elif resolved_reasoning_effort == 'never' -%}{{ raise_exception('no') }}{%- endif -%}"
) + CHAT_TEMPLATE.replace(
    "loop.index0 > ns.last_query",
    "preserve_thinking is undefined or preserve_thinking or loop.index0 > ns.last_query",
)
DEVELOPER = CHAT_TEMPLATE.replace(
    "{{ '<|im_start|>' + message.role",
    "{%- if message.role == 'system' -%}{{ raise_exception('No system.') }}{%- endif -%}"
    "{{ '<|im_start|>' + message.role",
)
THOUGHT = Turn("assistant", "Red.", reasoning="It is red.")


def with_template(processor: Path, tmp_path: Path, template: str) -> Path:
    folder = Path(shutil.copytree(processor, tmp_path / "processor"))
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.mark.parametrize(
    ("template", "offers"),
    [
        (CHAT_TEMPLATE, TemplateOffers()),
        (NEWER, TemplateOffers(EFFORTS, preserves=True)),
        (DEVELOPER, TemplateOffers(instructor="developer")),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", TemplateOffers()),
    ],
    ids=["older", "newer", "developer", "tags-of-transformers"],
)
def test_offers_are_those_of_the_template(
    processor: Path, tmp_path: Path, template: str, offers: TemplateOffers
) -> None:
    assert ChatTokenizer(with_template(processor, tmp_path, template)).offers == offers


def prompt(folder: Path, settings: ChatSettings, *turns: Turn) -> str:
    """The text of the prompt, special tokens left out."""
    tokenizer = ChatTokenizer(folder)
    template = ConversationTemplate(tokenizer, tokenizer.end_ids, PICTURE)
    ids = template.prompt(
        turns,
        (),
        thinking=True,
        effort=settings.reasoning_effort,
        preserve=settings.preserve_thinking,
    ).ids
    return whole_characters(tokenizer, ids.tolist())


def test_what_was_chosen_reaches_a_template_that_offers_it(processor: Path, tmp_path: Path) -> None:
    folder = with_template(processor, tmp_path, NEWER)
    turns = user("Hi"), THOUGHT, user("And?")
    low = replace(GREEDY, reasoning_effort="low")

    assert "Be brief." in prompt(folder, low, *turns)
    assert "Be brief." not in prompt(folder, GREEDY, *turns)
    assert "It is red." in prompt(folder, GREEDY, *turns)
    assert "It is red." not in prompt(folder, replace(low, preserve_thinking=False), *turns)


def test_the_engine_passes_the_settings_of_a_chat(processor: Path, tmp_path: Path) -> None:
    model = ChatModel(with_template(processor, tmp_path, NEWER))
    assert model.engine.model.offers == TemplateOffers(EFFORTS, preserves=True)

    def tokens(**chosen: Any) -> int:
        turns = user("Hi"), THOUGHT, user("And?")
        return model.engine.plan(turns, replace(GREEDY, **chosen)).prompt_tokens

    assert tokens(reasoning_effort="low") > tokens() > tokens(preserve_thinking=False)
    assert tokens(reasoning_effort="extreme") == tokens()


def test_instructions_come_from_the_role_that_the_template_knows(
    processor: Path, tmp_path: Path
) -> None:
    folder = with_template(processor, tmp_path, DEVELOPER)
    text = prompt(folder, GREEDY, Turn("system", "Be kind."), user("Hi"))
    assert text.startswith("developer\nBe kind.\nuser\nHi")


@pytest.mark.parametrize(
    ("offers", "effort", "preserve", "said"),
    [
        (TemplateOffers(EFFORTS), "max", None, "must be one of high, medium, low, found 'max'"),
        (TemplateOffers(), "low", None, "--reasoning-effort: this model's template has no words"),
        (TemplateOffers(EFFORTS), None, False, "--no-preserve-thinking: this model's template"),
        (TemplateOffers(EFFORTS), None, True, "--preserve-thinking: this model's template"),
    ],
)
def test_the_command_line_refuses_what_the_template_does_not_offer(
    offers: TemplateOffers, effort: str | None, preserve: bool | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        check_offered(offers, effort, preserve)
    check_offered(TemplateOffers(EFFORTS, preserves=True), "low", preserve=True)


def test_the_form_offers_what_the_template_offers() -> None:
    assert thinking_fields(TemplateOffers()) == ()
    effort, thoughts = thinking_fields(TemplateOffers(EFFORTS, preserves=True))
    settings = thoughts.apply(effort.apply(ChatSettings(), " Low "), "drop")

    assert (settings.reasoning_effort, settings.preserve_thinking) == ("low", False)
    assert (effort.show(settings), thoughts.show(settings)) == ("low", "drop")
    assert effort.apply(thoughts.apply(settings, ""), "") == ChatSettings()
    with pytest.raises(ValueError, match="must be one of high, medium, low, or empty"):
        effort.apply(settings, "max")


@pytest.mark.parametrize("preserve", [True, False, None])
def test_what_was_chosen_comes_back_from_the_store(preserve: bool | None) -> None:
    settings = ChatSettings(reasoning_effort="low", preserve_thinking=preserve)
    assert settings_from_text(settings_to_text(settings), Losses()) == settings
