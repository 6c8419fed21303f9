"""A sampling option stands wherever one is typed, shown, kept and read again."""

from __future__ import annotations

from dataclasses import astuple, fields

from q35chat.chat.values import ChatSettings, SamplingSettings
from q35chat.commands.ask import SamplingOptions
from q35chat.store.columns import Losses, settings_from_text, settings_to_text
from q35chat.tui.fields import SAMPLING_FIELDS

OPTIONS = {field.name for field in fields(SamplingSettings)}


def test_each_can_be_typed_on_the_command_line() -> None:
    assert {field.name for field in fields(SamplingOptions)} == OPTIONS | {"greedy"}


def test_each_has_a_line_in_the_form() -> None:
    assert {field.id for field in SAMPLING_FIELDS} == OPTIONS


def test_each_is_the_same_when_it_comes_back_from_the_store() -> None:
    unusual = SamplingSettings(
        temperature=0.5,
        top_k=7,
        top_p=0.5,
        min_p=0.5,
        presence_penalty=0.5,
        repetition_penalty=1.5,
        seed=7,
    )
    assert all(
        one != other
        for one, other in zip(astuple(unusual), astuple(SamplingSettings()), strict=True)
    )
    settings = ChatSettings(sampling=unusual)
    assert settings_from_text(settings_to_text(settings), Losses()) == settings
