"""transformers' own PyTorch model as the reference: prompts, states, logits, greedy tokens.

The only module that needs torch, and it imports it when a `Reference` is made; an `Encoder` does
without. It runs nothing of q35chat, so that an error there cannot hide on both sides of a
comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from q35chat.errors import Q35Error
from q35chat.processes import install_command
from q35export.verify.samples import Sample

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Opaque: TypeAlias = Any  # an object of torch or transformers, neither of which is typed here


class TorchMissingError(Q35Error):
    """The comparison needs PyTorch, which the base install leaves out."""


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """One picture as the vision tower takes it: `values` [P, patch] and its grid in patches."""

    values: Float32
    grid_h: int
    grid_w: int


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrompt:
    """Token ids [T] with one image token a merged patch, and the pictures in their order."""

    ids: Int64
    pictures: tuple[Patches, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Prefilled:
    """After reading a prompt: logits [V] of its last token and every state, named `conv_0`,
    `recurrent_0`, `key_3`, `value_3` after its layer."""

    logits: Float32
    states: Mapping[str, Float32]


@dataclass(frozen=True, slots=True, eq=False)
class GreedyTokens:
    """`tokens` [N] chosen greedily and the `logits` [N, V] each was chosen from."""

    tokens: Int64
    logits: Float32


def require_torch() -> Opaque:
    """The torch module. Raises TorchMissingError with the command that installs it."""
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise TorchMissingError(
            f"comparing with transformers needs PyTorch: {install_command('torch')}"
        ) from error
    return torch


class Encoder:
    """Samples as the checkpoint's own template, tokenizer and picture processor read them.

    Without `pictures` no file for them is read, and no sample may have one.
    """

    def __init__(self, folder: Path, *, pictures: bool = True) -> None:
        from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (  # noqa: PLC0415
            Qwen2VLImageProcessorPil,
        )

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._image_token, self._merge = -1, 1
        if not pictures:
            return
        config = AutoConfig.from_pretrained(folder)
        self._processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
        self._image_token = int(config.image_token_id)
        self._merge = int(config.vision_config.spatial_merge_size)

    def encode(self, sample: Sample) -> EncodedPrompt:
        """The sample as a prompt."""
        parts = [{"type": "image"} for _ in sample.drawings] + [
            {"type": "text", "text": sample.text}
        ]
        content = parts if sample.drawings else sample.text
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        pictures = tuple(self._patches(drawing.image()) for drawing in sample.drawings)
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return EncodedPrompt(self._expand(ids, pictures), pictures)

    def _patches(self, image: Opaque) -> Patches:
        output = self._processor(images=[image], return_tensors="np")
        _, height, width = (int(size) for size in output["image_grid_thw"][0])
        return Patches(np.asarray(output["pixel_values"], np.float32), height, width)

    def _expand(self, ids: list[int], pictures: tuple[Patches, ...]) -> Int64:
        """One image token becomes as many as its picture has merged patches."""
        counts = iter(p.grid_h * p.grid_w // self._merge**2 for p in pictures)
        runs = [[token] * (next(counts) if token == self._image_token else 1) for token in ids]
        return np.concatenate([np.array(run, np.int64) for run in runs])


class Reference:
    """A checkpoint in transformers, in FP32 on the CPU; without `pictures` its decoder alone."""

    def __init__(self, folder: Path, *, threads: int | None = None, pictures: bool = True) -> None:
        self._torch = torch = require_torch()
        from transformers import (  # noqa: PLC0415
            AutoModelForCausalLM,
            AutoModelForImageTextToText,
            GenerationConfig,
        )

        if threads is not None:
            torch.set_num_threads(threads)
        with _quiet():
            kind = AutoModelForImageTextToText if pictures else AutoModelForCausalLM
            self.model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.model.generation_config = GenerationConfig()
        self._pictures = pictures

    def vision(self, picture: Patches) -> Float32:
        """Embeddings [M, H] of one picture."""
        torch = self._torch
        grid = torch.tensor([[1, picture.grid_h, picture.grid_w]])
        with torch.inference_mode():
            output = self.model.model.visual(torch.from_numpy(picture.values), grid_thw=grid)
        return np.asarray(output.pooler_output.numpy(), np.float32)

    def prefill(self, prompt: EncodedPrompt) -> Prefilled:
        """Read the prompt in one call."""
        with self._torch.inference_mode():
            output = self.model(**self._inputs(prompt), use_cache=True, logits_to_keep=1)
        logits = np.asarray(output.logits[0, -1].numpy(), np.float32)
        return Prefilled(logits, dict(self._states(output.cache)))

    def greedy(self, prompt: EncodedPrompt, count: int) -> GreedyTokens:
        """Exactly `count` tokens of `generate`, stop tokens included."""
        with self._torch.inference_mode(), _quiet():
            output = self.model.generate(
                **self._inputs(prompt),
                max_new_tokens=count,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
        tokens = output.sequences[0, len(prompt.ids) :].numpy()
        logits = self._torch.cat(output.logits).numpy()
        return GreedyTokens(np.asarray(tokens, np.int64), np.asarray(logits, np.float32))

    def weight(self, name: str) -> Float32:
        """The tensor `name` of the checkpoint."""
        parameter = self.model.get_parameter(self._name_here(name))
        return np.asarray(parameter.detach().numpy(), np.float32)

    def untie(self) -> None:
        """Give a tied head weights of its own."""
        head = self.model.get_output_embeddings()
        own = head.weight.detach().clone()
        head.weight = self._torch.nn.Parameter(own, requires_grad=False)

    def load(self, weights: Mapping[str, Float32]) -> None:
        """Replace weights by name, for instance by those that a bundle really stores."""
        parameters = dict(self.model.named_parameters())
        with self._torch.inference_mode():
            for name, values in weights.items():
                target = parameters[self._name_here(name)]
                target.copy_(self._torch.from_numpy(values).reshape(target.shape))

    def _name_here(self, name: str) -> str:
        """What transformers calls a tensor of the checkpoint: a decoder alone stands by itself."""
        return name if self._pictures else name.replace("model.language_model.", "model.", 1)

    def _inputs(self, prompt: EncodedPrompt) -> dict[str, Any]:
        torch = self._torch
        ids = torch.from_numpy(prompt.ids)[None]
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if prompt.pictures:
            pixels = np.concatenate([picture.values for picture in prompt.pictures])
            grids = [[1, picture.grid_h, picture.grid_w] for picture in prompt.pictures]
            inputs["pixel_values"] = torch.from_numpy(pixels)
            inputs["image_grid_thw"] = torch.tensor(grids)
            inputs["mm_token_type_ids"] = (ids == self.model.config.image_token_id).int()
        return inputs

    def _states(self, cache: Opaque) -> Iterator[tuple[str, Float32]]:
        kinds = self.model.config.get_text_config().layer_types
        for index, (kind, layer) in enumerate(zip(kinds, cache.layers, strict=True)):
            if kind == "linear_attention":
                # transformers keeps one more convolution input than the next step reads
                pairs = (
                    ("conv", layer.conv_states[0][..., 1:]),
                    (
                        "recurrent",
                        layer.recurrent_states[0],
                    ),
                )
            else:
                pairs = ("key", layer.keys), ("value", layer.values)
            for name, tensor in pairs:
                yield f"{name}_{index}", np.asarray(tensor.numpy(), np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """No advice about kernels that a CPU cannot use, no bars."""
    from transformers.utils import logging  # noqa: PLC0415

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
