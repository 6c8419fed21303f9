"""The byte-level BPE tokenizer, trained on the demo's own conversations.

Owns vocabulary, special tokens and the encoding of training examples. No torch here.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers
from transformers import Qwen3_5Tokenizer

from .dialogues import FOR_WORDS, Conversation, training_conversation
from .pictures import MERGE_SIZE, PATCH_SIZE, target_size

VOCAB_SIZE = 1270
SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
THINK_TOKENS = ("<think>", "</think>")
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


@dataclass(frozen=True)
class Example:
    """One conversation as tokens: `learn[i]` says whether the model must predict `ids[i]`.

    `orders[i]` is the index of `pictures[i]` in its message.
    """

    ids: list[int]
    learn: list[bool]
    pictures: list[Image.Image]
    orders: list[int]


def corpus(seed: int, conversations: int) -> Iterator[str]:
    """Sentences to train the vocabulary on."""
    for index in range(conversations):
        conversation = training_conversation(f"vocabulary/{seed}/{index}", mix=FOR_WORDS)
        yield conversation.system or ""
        for turn in conversation.turns:
            yield turn.question
            yield turn.thought
            if not turn.answer[:1].isdigit():
                yield turn.answer
    yield from ("system", "user", "assistant", "\n\n", "system\n", "user\n", "assistant\n") * 50


def train(seed: int, conversations: int = 6000) -> Tokenizer:
    """A tokenizer with `VOCAB_SIZE` byte-level pieces, then the special and the think tokens.

    Normalisation and pre-tokenisation are those of transformers' `Qwen3_5Tokenizer`.
    """
    tokenizer = Tokenizer.from_str(Qwen3_5Tokenizer().backend_tokenizer.to_str())
    tokenizer = Tokenizer.from_str(
        json.dumps(json.loads(tokenizer.to_str()) | {"added_tokens": []})
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed, conversations), trainer)
    size = tokenizer.get_vocab_size()
    if size != VOCAB_SIZE:
        raise ValueError(
            f"The vocabulary has {size} pieces, not {VOCAB_SIZE}: raise conversations."
        )
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in THINK_TOKENS])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen3_5Tokenizer",
        "model_max_length": 4096,
        "add_prefix_space": False,
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "errors": "replace",
        "split_special_tokens": False,
        "clean_up_tokenization_spaces": False,
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text())


def picture_tokens(picture: Image.Image) -> int:
    """How many `<|image_pad|>` tokens the picture takes."""
    width, height = target_size(*picture.size)
    return (width // (PATCH_SIZE * MERGE_SIZE)) * (height // (PATCH_SIZE * MERGE_SIZE))


def encode(tokenizer: Tokenizer, conversation: Conversation, seed: str) -> Example:
    """A training example in which every answer is to be learnt.

    Past turns come as the template writes them (reasoning dropped), and in some conversations
    with the think block left in, as they stand in a state that a runtime goes on from.
    """
    rng = random.Random(f"history/{seed}")
    keep_blocks, pictures_last = rng.random() < 0.45, rng.random() < 0.12
    parts: list[tuple[str, bool]] = []
    if conversation.system is not None:
        parts.append((f"<|im_start|>system\n{conversation.system}<|im_end|>\n", False))
    newest = len(conversation.turns) - 1
    for index, turn in enumerate(conversation.turns):
        shown = "".join(
            f"<|vision_start|>{'<|image_pad|>' * picture_tokens(p)}<|vision_end|>"
            for p in turn.pictures
        )
        asked = turn.question + shown if pictures_last else shown + turn.question
        parts.append((f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n", False))
        if conversation.thinking and (index == newest or keep_blocks):
            parts.append(("<think>\n", False))
            parts.append((f"{turn.thought}\n</think>\n\n{turn.answer}<|im_end|>", True))
        else:
            if index == newest or keep_blocks:
                parts.append(("<think>\n\n</think>\n\n", False))
            parts.append((f"{turn.answer}<|im_end|>", True))
        parts.append(("\n", False))
    ids: list[int] = []
    learn: list[bool] = []
    for encoding, (_, learnt) in zip(
        tokenizer.encode_batch([text for text, _ in parts]), parts, strict=True
    ):
        ids += encoding.ids
        learn += [learnt] * len(encoding.ids)
    shown_all = [entry for turn in conversation.turns for entry in enumerate(turn.pictures)]
    return Example(
        ids, learn, [picture for _, picture in shown_all], [order for order, _ in shown_all]
    )
