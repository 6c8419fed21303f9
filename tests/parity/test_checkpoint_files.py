"""Which file is believed where two contradict each other: what transformers 5 does."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from q35chat.chat.checkpoint import ChatFiles, GenerationDefaults
from q35chat.vision.patches import fit
from q35chat.vision.rules import PictureRules
from q35export.config import load_config, parse_config
from tests.export.test_published import PUBLISHED
from tests.support.checkpoints import make_checkpoint
from tests.support.variants import change, change_tensors

pytestmark = pytest.mark.parity
FILES = {
    "processor_config.json": "{{ 'processor' }}",
    "chat_template.json": "{{ 'json' }}",
    "chat_template.jinja": "{{ 'jinja' }}",
    "tokenizer_config.json": "{{ 'tokenizer' }}",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "checkpoint", "plain", seed=1)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_template_is_the_one_that_transformers_takes(folder: Path, count: int) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415
    from transformers.processing_utils import ProcessorMixin  # noqa: PLC0415

    (folder / "chat_template.jinja").unlink()
    for number, names in enumerate(combinations(FILES, count)):
        place = Path(shutil.copytree(folder, folder.parent / str(number)))
        for name in names:
            if name.endswith(".jinja"):
                (place / name).write_text(FILES[name])
            else:
                change(place / name, chat_template=FILES[name])
        tokenizers = AutoTokenizer.from_pretrained(place).chat_template
        processors, _ = ProcessorMixin.get_processor_dict(place)
        found = processors.get("chat_template")
        for pictures, theirs in ((True, found or tokenizers), (False, tokenizers or found)):
            ours = ChatFiles.read(place, pictures=pictures).tokenizer
            text = ours.render(
                [{"role": "user", "content": "a"}], generation_prompt=False, thinking=False
            )
            assert f"{{{{ '{text}' }}}}" == theirs, (names, pictures)


@pytest.mark.parametrize(
    "nested", [None, {}, {"size": {"shortest_edge": 64, "longest_edge": 4096}}]
)
@pytest.mark.parametrize("limits", [{}, {"min_pixels": 128}, {"max_pixels": 4096}])
def test_pictures_are_resized_as_transformers_does(
    folder: Path, nested: dict[str, object] | None, limits: dict[str, object]
) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (  # noqa: PLC0415
        Qwen2VLImageProcessorPil,
    )

    if nested is not None:
        change(folder / "processor_config.json", image_processor={"patch_size": 16, **nested})
    change(folder / "preprocessor_config.json", **limits)
    image = Image.fromarray(np.zeros((300, 200, 3), np.uint8))
    theirs = Qwen2VLImageProcessorPil.from_pretrained(folder)(images=[image])
    rules = PictureRules.read(folder)
    ours = fit(image, rules, 10**6, name="a")

    _, rows, columns = theirs["image_grid_thw"][0]
    assert (ours.height, ours.width) == (rows * rules.patch_size, columns * rules.patch_size)
    assert rules.mean == tuple(Qwen2VLImageProcessorPil.from_pretrained(folder).image_mean)


def test_sizes_that_transformers_cannot_use_are_the_ones_we_refuse(folder: Path) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (  # noqa: PLC0415
        Qwen2VLImageProcessorPil,
    )

    change(folder / "preprocessor_config.json", size={"min_pixels": 64, "max_pixels": 4096})
    image = Image.fromarray(np.zeros((300, 200, 3), np.uint8))
    with pytest.raises(ValueError, match="must contain 'shortest_edge'"):
        Qwen2VLImageProcessorPil.from_pretrained(folder)(images=[image])


@pytest.mark.parametrize("eos", [7, [7, 8], None])
def test_without_generation_defaults_the_ends_are_those_of_transformers(
    folder: Path, eos: object
) -> None:
    from transformers import AutoConfig, GenerationConfig  # noqa: PLC0415

    (folder / "generation_config.json").unlink()
    text = json.loads((folder / "config.json").read_text())["text_config"]
    change(folder / "config.json", text_config=text | {"eos_token_id": eos})
    theirs = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder)).eos_token_id

    wanted = theirs if isinstance(theirs, list) else [] if theirs is None else [theirs]
    assert GenerationDefaults.read(folder).stop_ids == set(wanted)


def test_a_top_k_below_zero_cannot_be_drawn_with_in_transformers_either() -> None:
    from transformers import TopKLogitsWarper  # noqa: PLC0415

    with pytest.raises(ValueError, match="strictly positive"):
        TopKLogitsWarper(top_k=-1)


@pytest.mark.parametrize("differs", [True, False])
def test_a_head_beside_a_tied_embedding_is_tied_as_in_transformers(
    folder: Path, differs: bool
) -> None:
    from safetensors.numpy import load_file  # noqa: PLC0415
    from transformers import Qwen3_5ForConditionalGeneration  # noqa: PLC0415

    from q35export.checkpoint import Checkpoint  # noqa: PLC0415
    from q35export.matrix import EMBEDDING, HEAD  # noqa: PLC0415

    head = load_file(folder / "model.safetensors")[EMBEDDING].copy()
    head[0, 0] += differs
    change_tensors(folder, **{HEAD: head})
    model = Qwen3_5ForConditionalGeneration.from_pretrained(folder)
    fitted, _ = Checkpoint.open(folder).fit(load_config(folder))

    tied = model.lm_head.weight is model.model.language_model.embed_tokens.weight
    assert fitted.text.tied == tied == (not differs)
    np.testing.assert_array_equal(model.lm_head.weight.detach().numpy(), head)


def test_the_published_configuration_is_read_as_transformers_reads_it() -> None:
    from transformers import Qwen3_5Config  # noqa: PLC0415

    raw = json.loads(PUBLISHED.read_text(encoding="utf-8"))["config"]
    theirs, ours = Qwen3_5Config(**raw), parse_config(raw)
    text = theirs.text_config
    assert ours.text.layer_types == tuple(text.layer_types)
    assert ours.text.head_dim == text.head_dim
    assert ours.text.rope.theta == text.rope_parameters["rope_theta"]
    assert ours.text.linear_value_heads == text.linear_num_value_heads
    assert ours.tower.depth == theirs.vision_config.depth
    assert ours.image_token_id == theirs.image_token_id
