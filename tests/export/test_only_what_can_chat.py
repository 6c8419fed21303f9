"""What no chat could open is refused before anything is written, by the file and the field."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from q35chat.bundle.bundle import Bundle
from q35chat.commands.export_worker import estimate
from q35chat.errors import CheckpointError
from q35export.pipeline import export
from q35export.progress import PlainReporter
from q35export.request import ExportRequest
from tests.support.checkpoints import make_checkpoint
from tests.support.shapes import PADDING_ROWS, SHAPES
from tests.support.tokenizer import CHAT_TEMPLATE
from tests.support.variants import add_tokens, change

SHAPE = SHAPES["plain"]
RULES = "preprocessor_config.json"
NESTED = "processor_config.json"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12807982\n"


def only_a_bare_processor(folder: Path) -> None:
    (folder / RULES).unlink()
    change(folder / NESTED, processor_class="Qwen3VLProcessor")


def size_in_pixels(folder: Path) -> None:
    change(folder / RULES, size={"min_pixels": 3136, "max_pixels": 12845056})


def other_patches(folder: Path) -> None:
    change(folder / RULES, patch_size=14)


def no_top_k(folder: Path) -> None:
    change(folder / "generation_config.json", do_sample=True, top_k=-1)


def pointer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(POINTER)


def half_a_tokenizer(folder: Path) -> None:
    data = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(data[: len(data) // 2])


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_default(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "rag", "template": "a"}, {"name": "tool_use", "template": "b"}]
    change(folder / "tokenizer_config.json", chat_template=named)


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def refusing_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('Only tools.') }}")


def no_second_turn(folder: Path) -> None:
    once = "{% if messages|length > 2 %}{{ raise_exception('One turn.') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(once + CHAT_TEMPLATE)


def other_placeholder(folder: Path) -> None:
    change(folder / "config.json", image_token_id=SHAPE.special_id("<|video_pad|>"))


def token_past_the_embedding(folder: Path) -> None:
    add_tokens(folder, PADDING_ROWS + 1)


def no_room_left(folder: Path) -> None:
    add_tokens(folder, PADDING_ROWS)


def endless(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "tokenizer_config.json", eos_token=None)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE.replace("<|im_end|>", ""))
    text = json.loads((folder / "config.json").read_text())["text_config"]
    change(folder / "config.json", text_config=text | {"eos_token_id": None})


REFUSED: list[tuple[Callable[[Path], None], str]] = [
    (only_a_bare_processor, "has no preprocessor_config.json, and processor_config.json no image_"),
    (size_in_pixels, "preprocessor_config.json: size lacks the field 'shortest_edge'"),
    (other_patches, "preprocessor_config.json: patch_size is 14, the model has 16"),
    (no_top_k, "generation_config.json: it: field 'top_k' must be a number from 0"),
    (pointer, "tokenizer.json is a Git LFS pointer of 70 bytes, not the file; run `git lfs pull`"),
    (half_a_tokenizer, "tokenizer.json is a damaged tokenizer: "),
    (no_tokenizer, "has neither tokenizer.json nor vocab.json and merges.txt"),
    (no_default, "tokenizer_config.json has no chat_template named 'default', only rag, tool_use"),
    (no_template, "has no chat template"),
    (
        refusing_template,
        "the chat template (chat_template.jinja) refused the conversation: Only tools.",
    ),
    (no_second_turn, "the chat template (chat_template.jinja) refused the conversation: One turn."),
    (other_placeholder, "<|image_pad|> for a picture, config.json says image_token_id 374"),
    (token_past_the_embedding, "the token '<new7>' has the id 384, the embedding only 384 rows"),
    (endless, "generation_config.json has no eos_token_id, and neither tokenizer nor chat templ"),
]


def request(folder: Path, *spoil: Callable[[Path], Any]) -> ExportRequest:
    checkpoint = make_checkpoint(folder / "checkpoint", "plain", seed=1)
    for change_it in spoil:
        change_it(checkpoint)
    return ExportRequest(
        str(checkpoint), folder / "out", target="cpu", precision="fp32", max_seq_len=64
    )


def exported(asked: ExportRequest) -> str:
    """What was noted on the way."""
    said = io.StringIO()
    export(asked, PlainReporter(said))
    return said.getvalue()


@pytest.mark.parametrize(("spoil", "said"), REFUSED, ids=[each.__name__ for each, _ in REFUSED])
def test_export_and_sizes_refuse_what_no_chat_could_open(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    asked = request(tmp_path, spoil)
    for attempt in (
        lambda: exported(asked),
        lambda: exported(replace(asked, dry_run=True)),
        lambda: estimate(asked),
    ):
        with pytest.raises(CheckpointError, match=re.escape(said)) as error:
            attempt()
        line = str(error.value)
        assert "\n" not in line
        assert "q35chat-" not in line
        assert "download" not in line
        assert "export" not in line.replace(str(tmp_path), "")
    assert not asked.out.exists()


def nested_rules(folder: Path) -> None:
    change(folder / NESTED, image_processor=json.loads((folder / RULES).read_text()))
    (folder / RULES).unlink()


def json_template(folder: Path) -> None:
    change(folder / "chat_template.json", chat_template=CHAT_TEMPLATE)
    (folder / "chat_template.jinja").unlink()


def no_tokenizer_config(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()


@pytest.mark.parametrize(
    "change_it", [nested_rules, json_template, no_tokenizer_config, no_room_left]
)
def test_what_transformers_reads_is_exported_and_opens(
    tmp_path: Path, change_it: Callable[[Path], None]
) -> None:
    from q35chat.chat.engine import ChatEngine  # noqa: PLC0415
    from q35chat.runtimes import cpu  # noqa: PLC0415

    asked = request(tmp_path, change_it)
    assert exported(asked).count("differ") == 0
    engine = ChatEngine.open(Bundle.open(asked.out), cpu(threads=1))
    assert engine.model.pictures
    engine.close()


def test_files_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    def contradict(folder: Path) -> None:
        change(folder / NESTED, image_processor={"patch_size": 16, "merge_size": 2})
        change(folder / "chat_template.json", chat_template=CHAT_TEMPLATE + " ")

    said = exported(request(tmp_path, contradict))
    assert "processor_config.json and preprocessor_config.json differ: the first is used" in said
    assert "chat_template.json and chat_template.jinja differ: the template of chat_templ" in said


def test_a_template_without_pictures_is_exported_with_a_word(tmp_path: Path) -> None:
    def plain(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(
            "{% for m in messages %}<|im_start|>{{ m.content.strip() }}<|im_end|>\n{% endfor %}"
        )

    assert "has no place for pictures" in exported(request(tmp_path, plain))


def test_a_vocabulary_and_its_merges_become_a_tokenizer(tmp_path: Path) -> None:
    whole = json.loads((make_checkpoint(tmp_path / "whole") / "tokenizer.json").read_text())

    def apart(folder: Path) -> None:
        model = whole["model"]
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        merges = "\n".join(" ".join(pair) for pair in model["merges"])
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
        (folder / "tokenizer.json").unlink()

    from q35chat.chat.prompt.tokenizer import ChatTokenizer  # noqa: PLC0415

    asked = request(tmp_path, apart)
    exported(asked)
    made = ChatTokenizer(Bundle.open(asked.out).processor_dir)
    kept = ChatTokenizer(tmp_path / "whole")
    for text in ("Hello the red picture 图片。 it's <|im_end|> e\u0301 12", "<think>\n\n</think>"):
        assert made.encode(text) == kept.encode(text)
        assert made.encode_literally(text) == kept.encode_literally(text)
    assert made.special_ids == kept.special_ids
    assert made.end_ids == kept.end_ids


def test_a_vocabulary_that_makes_no_tokenizer_is_named(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.json").write_text("{")
        (folder / "merges.txt").write_text("")

    with pytest.raises(CheckpointError, match=r"vocab\.json makes no tokenizer: "):
        exported(request(tmp_path, broken))
