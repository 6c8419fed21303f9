"""Files of checkpoints as people have them: which of them is believed, and what ends an answer."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from q35chat.chat.checkpoint import ChatFiles, GenerationDefaults
from q35chat.chat.workspace import unkept
from q35chat.errors import BundleError, PictureError
from q35chat.vision.rules import PictureRules
from tests.doubles.chat_model import END, GREEDY, PICTURE, SHAPE, ChatModel, user
from tests.support.shapes import PADDING_ROWS
from tests.support.tokenizer import CHAT_TEMPLATE
from tests.support.variants import add_tokens, change

ENDOFTEXT = SHAPE.special_id("<|endoftext|>")
OTHER = SHAPE.special_id("<|vision_end|>")
PICTURES = {"patch_size": 16, "size": {"shortest_edge": 1024, "longest_edge": 32768}}


@pytest.fixture
def folder(processor: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(processor, tmp_path / "processor"))


def ending(folder: Path, *, by_defaults: bool, by_tokenizer: bool, by_template: bool) -> Path:
    """Each of the three sources names what ends an answer, or another token."""
    change(folder / "generation_config.json", eos_token_id=END if by_defaults else ENDOFTEXT)
    change(
        folder / "tokenizer_config.json",
        eos_token="<|im_end|>" if by_tokenizer else "<|endoftext|>",
    )
    if not by_template:
        other = CHAT_TEMPLATE.replace("<|im_end|>", "<|vision_end|>")
        (folder / "chat_template.jinja").write_text(other)
    return folder


@pytest.mark.parametrize(
    ("by_defaults", "by_tokenizer", "by_template"), list(product([True, False], repeat=3))
)
def test_an_answer_ends_with_what_any_of_three_files_calls_its_end(
    folder: Path, by_defaults: bool, by_tokenizer: bool, by_template: bool
) -> None:
    ending(folder, by_defaults=by_defaults, by_tokenizer=by_tokenizer, by_template=by_template)
    wanted = {
        END if by_defaults else ENDOFTEXT,
        END if by_tokenizer else ENDOFTEXT,
        END if by_template else OTHER,
    }

    assert ChatFiles.read(folder, pictures=True).stop_ids == wanted


@pytest.mark.parametrize("by", ["by_defaults", "by_tokenizer", "by_template"])
def test_an_answer_stops_where_only_one_file_knows_its_end(folder: Path, by: str) -> None:
    sources = dict.fromkeys(("by_defaults", "by_tokenizer", "by_template"), False) | {by: True}
    model = ChatModel(ending(folder, **sources))
    said = model.ids("Hi")
    model.say([user("a")], *said, END, *said)

    finished = model.finish([user("a")])

    assert (finished.text, finished.reason) == ("Hi", "stop")


def test_a_template_that_ends_no_turn_with_a_token_adds_none(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    )

    assert ChatFiles.read(folder, pictures=True).stop_ids == {END, ENDOFTEXT}


def test_without_generation_defaults_the_configuration_names_the_end(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", text_config={"eos_token_id": 7})

    assert GenerationDefaults.read(folder).stop_ids == {7}


def test_top_k_counts_only_where_tokens_are_drawn(folder: Path) -> None:
    path = folder / "generation_config.json"
    change(path, do_sample=False, top_k=-1)
    assert GenerationDefaults.read(folder).sampling.temperature == 0

    change(path, do_sample=True)
    with pytest.raises(BundleError, match=r"generation_config\.json.*'top_k' must be"):
        GenerationDefaults.read(folder)


def test_nested_picture_rules_win_over_a_file_of_their_own(folder: Path) -> None:
    own = PictureRules.read(folder)
    change(folder / "processor_config.json", image_processor=PICTURES)

    assert PictureRules.read(folder).max_pixels == 32768 < own.max_pixels
    (folder / "preprocessor_config.json").unlink()
    assert PictureRules.read(folder).max_pixels == 32768


@pytest.mark.parametrize("processor_config", [{}, {"image_processor": None}, {"a": 1}])
def test_a_processor_without_an_image_processor_leaves_the_other_file(
    folder: Path, processor_config: dict[str, Any]
) -> None:
    own = PictureRules.read(folder)
    (folder / "processor_config.json").write_text(json.dumps(processor_config))
    assert PictureRules.read(folder) == own

    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(BundleError, match=r"has no preprocessor_config\.json, and processor_conf"):
        PictureRules.read(folder)


def test_what_picture_rules_leave_out_is_as_in_transformers() -> None:
    rules = PictureRules.from_config({"min_pixels": None})

    assert (rules.patch_size, rules.merge_size, rules.temporal_patch_size) == (14, 2, 2)
    assert (rules.min_pixels, rules.max_pixels) == (3136, 1003520)
    assert rules.mean == (0.48145466, 0.4578275, 0.40821073)


def test_sizes_named_as_pixels_inside_size_are_refused_with_the_field() -> None:
    with pytest.raises(BundleError, match="size lacks the field 'shortest_edge'"):
        PictureRules.from_config({"size": {"min_pixels": 3136, "max_pixels": 65536}})


def template_of(folder: Path, *, pictures: bool = True) -> str:
    tokenizer = ChatFiles.read(folder, pictures=pictures).tokenizer
    return tokenizer.render(
        [{"role": "user", "content": "a"}], generation_prompt=False, thinking=False
    )


TEMPLATES = {
    "processor_config.json": "{{ 'processor' }}",
    "chat_template.json": "{{ 'json' }}",
    "chat_template.jinja": "{{ 'jinja' }}",
    "tokenizer_config.json": "{{ 'tokenizer' }}",
}


def with_templates(folder: Path, *names: str) -> Path:
    (folder / "chat_template.jinja").unlink()
    for name in names:
        if name.endswith(".jinja"):
            (folder / name).write_text(TEMPLATES[name])
        else:
            change(folder / name, chat_template=TEMPLATES[name])
    return folder


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_found_in_each_file_that_has_one(folder: Path, name: str) -> None:
    with_templates(folder, name)

    for pictures in (True, False):
        assert f"'{template_of(folder, pictures=pictures)}'" in TEMPLATES[name]


def test_of_several_templates_that_of_the_processor_counts_where_there_are_pictures(
    folder: Path,
) -> None:
    with_templates(folder, *TEMPLATES)

    for name in ("processor", "json", "jinja"):
        assert template_of(folder) == name
        assert template_of(folder, pictures=False) == "jinja"
        found = ChatFiles.read(folder, pictures=True).tokenizer.template_files
        assert len(found) > 1
        if name == "jinja":
            break
        path = folder / found[0]
        change(path, chat_template=...) if name == "processor" else path.unlink()


def test_named_templates_need_a_default(folder: Path) -> None:
    named = [{"name": name, "template": TEMPLATES["chat_template.jinja"]} for name in ("b", "a")]
    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", chat_template=named)
    with pytest.raises(
        BundleError, match=r"tokenizer_config\.json has no chat_template named 'default', only a, b"
    ):
        ChatFiles.read(folder, pictures=True)

    default = {"name": "default", "template": TEMPLATES["chat_template.json"]}
    change(folder / "tokenizer_config.json", chat_template=[*named, default])
    assert template_of(folder) == "json"


@pytest.mark.parametrize("content", ["[1]", "{", '{"chat_template": 5}'])
def test_a_damaged_template_file_is_named(folder: Path, content: str) -> None:
    (folder / "chat_template.json").write_text(content)
    with pytest.raises(BundleError, match=r"chat_template\.json"):
        ChatFiles.read(folder, pictures=True)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}<|im_start|>{{ m.content.strip() }}<|im_end|>\n{% endfor %}",
        "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>\n{% endfor %}",
    ],
    ids=["refuses", "spells"],
)
def test_a_template_without_pictures_refuses_one_before_anything_runs(
    folder: Path, tmp_path: Path, template: str
) -> None:
    (folder / "chat_template.jinja").write_text(template)
    model = ChatModel(folder)

    with pytest.raises(PictureError, match="this model's template takes no pictures"):
        model.engine.attach(tmp_path / "a.png", 64)
    assert not model.engine.model.pictures
    assert model.engine.plan([user("a")], GREEDY).prompt_tokens > 0


def test_a_template_with_another_picture_token_is_refused(folder: Path) -> None:
    other = CHAT_TEMPLATE.replace("<|image_pad|>", "<|video_pad|>")
    (folder / "chat_template.jinja").write_text(other)
    files = ChatFiles.read(folder, pictures=True)

    with pytest.raises(BundleError, match=rf"video_pad.*image_token_id {PICTURE}"):
        files.takes_pictures(PICTURE)


def test_a_question_with_an_id_past_the_embedding_is_refused_before_it_runs(folder: Path) -> None:
    add_tokens(folder, PADDING_ROWS + 1)
    model = ChatModel(folder)

    with pytest.raises(BundleError, match=rf"'<new7>' in this chat has the id {SHAPE.vocab}, "):
        next(model.engine.run([user("a <new7> b")], GREEDY, lambda: False))
    assert model.engine.plan([user("a <new6> b")], GREEDY).prompt_tokens > 0
    assert model.text.runs == []


def test_a_question_that_could_not_run_is_not_kept_and_the_next_one_is_answered(
    folder: Path,
) -> None:
    add_tokens(folder, PADDING_ROWS + 1)
    model = ChatModel(folder)
    chat = unkept(model.engine, GREEDY)
    with pytest.raises(BundleError, match="<new7>"):
        list(chat.send("a <new7> b"))
    assert list(chat.steps) == []

    model.say([user("a")], *model.ids("Hi"), END)
    list(chat.send("a"))
    assert [step.turn.text for step in chat.steps] == ["a", "Hi"]


def test_a_model_that_sees_none_asks_for_no_picture_rules(folder: Path, tmp_path: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    model = ChatModel(folder, with_vision=False, sees=False)

    assert not model.engine.model.pictures
    with pytest.raises(PictureError, match="this model sees no pictures"):
        model.engine.attach(tmp_path / "a.png", 64)
    said = model.ids("Hi")
    model.say([user("a")], *said, END)
    assert model.finish([user("a")]).text == "Hi"
