"""A tiny byte-level BPE tokenizer with Qwen's special tokens, and the processor files beside it.

Merges are spelled out, not trained, so that ids never change. Some merges end inside a Chinese
character, as real ones do. Ids above the merges have filler names, so that any id decodes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from tests.support.shapes import PADDING_ROWS, SPECIAL_TOKENS, ShapeSpec

WORDS = (
    " the", " and", " picture", " red", "user", "assistant", "system", "Hello", "ing", "图片", "。",
)  # fmt: skip
_PLAIN_TOKENS = ("<think>", "</think>")  # kept by `skip_special_tokens`, as in the real tokenizer
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{%- set images = namespace(seen=0) -%}
{%- macro body(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}
{%- for part in content -%}
{%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'text' in part -%}{{ part.text }}
{%- else -%}{{ raise_exception('Unknown content part.') }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_query=0) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set ns.last_query = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'system' and not loop.first -%}
{{ raise_exception('A system message must come first.') }}
{%- endif -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' -%}
{%- set text = body(message.content) -%}
{%- set thought = message.reasoning_content or '' -%}
{%- if not thought and '</think>' in text -%}
{%- set thought = text.split('</think>')[0].split('<think>')[-1] -%}
{%- set text = text.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{%- if loop.index0 > ns.last_query -%}
{{ '<think>\\n' + thought.strip() + '\\n</think>\\n\\n' }}
{%- endif -%}
{{ text.strip() }}
{%- else -%}
{{ body(message.content).strip() }}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking -%}
{{ '<think>\\n' }}
{%- else -%}
{{ '<think>\\n\\n</think>\\n\\n' }}
{%- endif -%}
{%- endif -%}
"""


def write_processor_files(folder: Path, shape: ShapeSpec) -> None:
    """Tokenizer, chat template, picture processor and generation defaults."""
    _tokenizer(shape).save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", _tokenizer_config(shape))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    _write(folder / "preprocessor_config.json", _preprocessor_config(shape))
    _write(folder / "generation_config.json", _generation_config(shape))


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _vocabulary(shape: ShapeSpec) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids of bytes, merged pieces, fillers and special tokens; and the merges."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        spelled = level.pre_tokenize_str(word)[0][0]
        for end in range(2, len(spelled) + 1):
            merge = (spelled[: end - 1], spelled[end - 1])
            if merge not in merges:
                merges.append(merge)
                pieces.append(spelled[:end])
    pieces += [f"Ġw{number}" for number in range(shape.first_special - len(pieces))]
    pieces += SPECIAL_TOKENS
    if len(pieces) != shape.vocab - PADDING_ROWS:
        raise ValueError(f"vocabulary {shape.vocab} is too small for the test tokenizer")
    return {piece: index for index, piece in enumerate(pieces)}, merges


def _tokenizer(shape: ShapeSpec) -> Tokenizer:
    vocabulary, merges = _vocabulary(shape)
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=token not in _PLAIN_TOKENS, normalized=False)
            for token in SPECIAL_TOKENS
        ]
    )
    return tokenizer


def _tokenizer_config(shape: ShapeSpec) -> dict[str, Any]:
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(shape.special_id(token)): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": token not in _PLAIN_TOKENS,
            }
            for token in SPECIAL_TOKENS
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def _preprocessor_config(shape: ShapeSpec) -> dict[str, Any]:
    pixels = (shape.patch * shape.merge) ** 2
    low, high = shape.image_tokens
    return {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": low * pixels, "longest_edge": high * pixels},
        "patch_size": shape.patch,
        "temporal_patch_size": shape.temporal_patch,
        "merge_size": shape.merge,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }


def _generation_config(shape: ShapeSpec) -> dict[str, Any]:
    return {
        "bos_token_id": shape.special_id("<|endoftext|>"),
        "do_sample": True,
        "eos_token_id": [shape.special_id("<|im_end|>"), shape.special_id("<|endoftext|>")],
        "pad_token_id": shape.special_id("<|endoftext|>"),
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
    }
