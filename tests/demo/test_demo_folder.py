"""The shipped folder is an ordinary checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from q35chat.vision.patches import fitted_size
from q35chat.vision.rules import PictureRules
from tests.support.patchify import patchify
from tools.demo_model.held_out import held_out_picture_questions
from tools.demo_model.pictures import patches, target_size

DEMO = Path(__file__).parents[2] / "assets" / "demo-model"
USER = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DEMO)


def render(tokenizer: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    options = {"add_generation_prompt": True, "enable_thinking": False} | options
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    return text


def test_it_is_a_qwen35_of_both_layer_types_in_12_megabytes() -> None:
    config = json.loads((DEMO / "config.json").read_text())
    text = config["text_config"]
    assert config["model_type"] == "qwen3_5"
    assert set(text["layer_types"]) == {"linear_attention", "full_attention"}
    assert text["linear_num_value_heads"] == 2 * text["linear_num_key_heads"]
    assert text["num_attention_heads"] == 2 * text["num_key_value_heads"]
    assert sum(file.stat().st_size for file in DEMO.iterdir()) <= 12e6


def test_special_ids_agree_between_config_and_tokenizer(tokenizer: Any) -> None:
    config = json.loads((DEMO / "config.json").read_text())
    stops = json.loads((DEMO / "generation_config.json").read_text())["eos_token_id"]
    ids = tokenizer.convert_tokens_to_ids
    assert config["image_token_id"] == ids("<|image_pad|>")
    assert config["vision_start_token_id"] == ids("<|vision_start|>")
    assert config["vision_end_token_id"] == ids("<|vision_end|>")
    assert stops == [ids("<|im_end|>"), ids("<|endoftext|>")]
    assert len(tokenizer) <= config["text_config"]["vocab_size"]


@pytest.mark.parametrize(
    "text", ["Hello!", "你好，世界", "żółć 😀\n\n  x", "<think>a</think>", "2048"]
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_a_conversation_renders_as_the_model_was_trained(tokenizer: Any) -> None:
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": "<think>\nA look.\n</think>\n\nA circle."},
        {"role": "user", "content": "Thanks"},
    ]
    assert render(tokenizer, said) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is it?<|im_end|>\n"
        "<|im_start|>assistant\nA circle.<|im_end|>\n"
        "<|im_start|>user\nThanks<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_thinking_opens_the_block(tokenizer: Any) -> None:
    assert render(tokenizer, [USER], enable_thinking=True).endswith("assistant\n<think>\n")


def test_the_newest_answer_keeps_its_reasoning(tokenizer: Any) -> None:
    answer = {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."}
    text = render(tokenizer, [USER, answer], add_generation_prompt=False)
    assert text.endswith("<think>\nA greeting.\n</think>\n\nHi.<|im_end|>\n")
    assert "A greeting." not in render(tokenizer, [USER, answer, USER])


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "tool", "content": "x"}],
        [USER, {"role": "system", "content": "late"}],
        [{"role": "user", "content": [{"type": "video"}]}],
    ],
)
def test_what_it_cannot_render_is_an_error(tokenizer: Any, messages: list[dict[str, Any]]) -> None:
    with pytest.raises(
        Exception, match=r"empty conversation|There are no|Unknown role|must come first|must be of"
    ):
        render(tokenizer, messages)


@pytest.mark.parametrize("size", [(8, 8), (4000, 3000), (960, 120), (192, 192), (30, 900)])
def test_training_scales_pictures_as_the_runtime_does(size: tuple[int, int]) -> None:
    rules = PictureRules.read(DEMO)
    assert target_size(*size) == fitted_size(*size, rules)


def test_training_cuts_pictures_up_as_the_runtime_does() -> None:
    rules = PictureRules.read(DEMO)
    question = held_out_picture_questions(1)[0]
    ours, grid = patches(question.pictures[0])
    theirs, *runtime_grid = patchify(question.pictures[0], rules)
    assert tuple(runtime_grid) == grid
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
