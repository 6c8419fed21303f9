"""The head for drafts in PyTorch, which transformers leaves out: the reference of the tests.

Its one layer is transformers' own text model with a single full-attention layer, so that attention,
rotation and feed-forward are not written twice; what lies before it is written from the definition.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

from q35export.verify.reference import EncodedPrompt, Float32, Int64
from tests.support.reference import LiveReference


@dataclass(frozen=True, slots=True, eq=False)
class HeadInputs:
    """Pairs of a sequence of N + 1 tokens: what the decoder made of the first N (`hidden` [N, H]),
    their `positions` [3, N], the `ids` [N] after them, and the embeddings of those [N, H]."""

    hidden: Float32
    positions: Int64
    ids: Int64
    embeddings: Float32


class HeadReference:
    """The head of the checkpoint that `reference` has loaded from `folder`."""

    def __init__(self, folder: Path, reference: LiveReference) -> None:
        self.reference = reference
        self._weights = weights = _mtp_tensors(folder)
        config = copy.deepcopy(reference.model.config.text_config)
        config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
        self._eps = config.rms_norm_eps
        self._layer = Qwen3_5TextModel(config).eval()
        own = {
            name: tensor
            for name, tensor in weights.items()
            if name.startswith(("layers.0.", "norm."))
        }
        missing, unexpected = self._layer.load_state_dict(own, strict=False)
        assert missing == ["embed_tokens.weight"]
        assert unexpected == []

    def inputs(self, prompt: EncodedPrompt) -> HeadInputs:
        """The pairs of the prompt, pictures included."""
        model = self.reference.model
        ids = torch.from_numpy(prompt.ids)
        with torch.inference_mode():
            inputs = self.reference._inputs(prompt)
            hidden = model.model(**inputs, use_cache=False).last_hidden_state[0]
            embeddings = model.get_input_embeddings()(ids)
            rows = [torch.from_numpy(self.reference.vision(p)) for p in prompt.pictures]
            if rows:
                embeddings[ids == model.config.image_token_id] = torch.cat(rows)
        positions = self.reference.positions(prompt)
        return HeadInputs(
            hidden[:-1].numpy(), positions[:, :-1], prompt.ids[1:], embeddings[1:].numpy()
        )

    def run(self, embeddings: Float32, hidden: Float32, positions: Int64) -> Float32:
        """What the head makes of every pair, [N, H]."""
        with torch.inference_mode():
            x = torch.cat(
                [
                    self._norm("pre_fc_norm_embedding", embeddings),
                    self._norm("pre_fc_norm_hidden", hidden),
                ],
                dim=-1,
            )
            output = self._layer(
                inputs_embeds=(x @ self._weights["fc.weight"].T)[None],
                position_ids=torch.from_numpy(positions)[:, None],
                use_cache=False,
            )
        return np.asarray(output.last_hidden_state[0].numpy(), np.float32)

    def logits(self, hidden: Float32) -> Float32:
        """Through the head that it shares with the decoder, [N, V]."""
        with torch.inference_mode():
            return np.asarray(self.reference.model.lm_head(torch.from_numpy(hidden)).numpy())

    def chain(self, prompt: EncodedPrompt, count: int) -> list[tuple[int, Float32]]:
        """`count` drafts after the prompt, one upon the other, and the logits [V] of each; the
        last token of the prompt is the one that was just chosen."""
        pairs = self.inputs(prompt)
        embeddings, hidden, positions = pairs.embeddings, pairs.hidden, pairs.positions
        place = int(self.reference.positions(prompt)[0, -1])
        drafts = []
        for number in range(count):
            made = self.run(embeddings, hidden, positions)[-1:]
            logits = self.logits(made)[0]
            drafts.append((int(logits.argmax()), logits))
            embedding = self._embedding(drafts[-1][0])
            embeddings, hidden = (
                np.concatenate([embeddings, embedding]),
                np.concatenate([hidden, made]),
            )
            positions = np.concatenate([positions, np.full((3, 1), place + number)], axis=1)
        return drafts

    def _embedding(self, token: int) -> Float32:
        with torch.inference_mode():
            row = self.reference.model.get_input_embeddings()(torch.tensor([token]))
        return np.asarray(row.numpy(), np.float32)

    def _norm(self, name: str, values: Float32) -> Any:
        x = torch.from_numpy(values)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._eps)
        return x * scale * (1 + self._weights[f"{name}.weight"])


def _mtp_tensors(folder: Path) -> dict[str, Any]:
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                if name.startswith("mtp."):
                    found[name.removeprefix("mtp.")] = file.get_tensor(name).float()
    return found
