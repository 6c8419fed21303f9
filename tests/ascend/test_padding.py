"""Padding to a gear changes nothing, in prompts and in pictures."""

from __future__ import annotations

import numpy as np
import pytest

from q35chat.errors import CapacityError
from q35chat.vision.positions import mrope_positions
from tests.ascend.conftest import Export
from tests.support.ascend import Array, AscendChat, Exported, encode_picture

VARIANTS: tuple[dict[str, bool], ...] = (
    {},
    {"fused_prefill": False},
    {"stateless_prefill": True},
    {"fused_prefill": False, "fused_decode": False},
)
NAMES = ["fused", "unfused prefill", "stateless", "growing"]


def ids_of(exported: Exported, count: int) -> list[int]:
    generator = np.random.default_rng(7)
    ids: list[int] = generator.integers(0, exported.config.text.vocab_size - 20, count).tolist()
    return ids


def after(exported: Exported, ids: list[int], gear: int | None) -> tuple[AscendChat, Array]:
    chat = AscendChat(exported)
    return chat, chat.prefill(ids, gear=gear)


def used(chat: AscendChat) -> dict[str, Array]:
    """States with the cache cut to the slots in use: what lies past them is masked."""
    return chat.states | {"kv_cache": chat.states["kv_cache"][..., : chat.length, :]}


@pytest.mark.parametrize("options", VARIANTS, ids=NAMES)
@pytest.mark.parametrize("shape", ["plain", "narrow_key"])
@pytest.mark.parametrize("count", [2, 21, 33])
def test_padding_changes_no_bit_of_states_and_logits(
    exported: Export, shape: str, options: dict[str, bool], count: int
) -> None:
    graphs = exported(shape, dtype="fp32", gears=(32, 64), **options)
    ids = ids_of(graphs, count)
    exact, logits = after(graphs, ids, None)
    padded, padded_logits = after(graphs, ids, 32 if count <= 32 else 64)
    np.testing.assert_array_equal(padded_logits, logits)
    for name, state in used(exact).items():
        np.testing.assert_array_equal(used(padded)[name], state, err_msg=name)
    assert padded.greedy(padded_logits, 8) == exact.greedy(logits, 8)


@pytest.mark.parametrize("options", VARIANTS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("pieces", [(30, 1), (1, 30), (7, 8, 9, 7), (16, 15)])
def test_a_prompt_in_pieces_gives_the_states_of_the_whole(
    exported: Export, options: dict[str, bool], pieces: tuple[int, ...]
) -> None:
    graphs = exported("plain", dtype="fp32", gears=(32, 64), **options)
    ids = ids_of(graphs, sum(pieces))
    whole, logits = after(graphs, ids, 32)
    chat = AscendChat(graphs)
    rest = list(ids)
    for count in pieces:
        piece, rest = rest[:count], rest[count:]
        last = chat.prefill(piece, gear=32)
    np.testing.assert_allclose(last, logits, atol=5e-3)
    for name, state in used(whole).items():
        np.testing.assert_allclose(used(chat)[name], state, atol=5e-3, err_msg=name)
    assert chat.greedy(last, 8) == whole.greedy(logits, 8)


def test_a_prefill_after_decode_steps_goes_on_from_their_states(exported: Export) -> None:
    graphs = exported("plain", dtype="fp32", gears=(32, 64))
    ids = ids_of(graphs, 20)
    whole, logits = after(graphs, ids, None)
    chat, _ = after(graphs, ids[:10], 32)
    for token in ids[10:14]:
        chat.step(token)
    last = chat.prefill(ids[14:], gear=32)
    np.testing.assert_allclose(last, logits, atol=5e-3)
    assert chat.greedy(last, 8) == whole.greedy(logits, 8)


def test_a_gear_reaching_past_the_capacity_writes_only_its_valid_tokens(exported: Export) -> None:
    graphs = exported("plain", dtype="fp32", gears=(32, 64))
    ids = ids_of(graphs, 64)
    whole, logits = after(graphs, ids, 64)
    chat, _ = after(graphs, ids[:59], 64)
    last = chat.prefill(ids[59:], gear=32)
    np.testing.assert_allclose(last, logits, atol=5e-3)
    np.testing.assert_allclose(chat.states["kv_cache"], whole.states["kv_cache"], atol=5e-3)


def test_slots_past_the_prompt_stay_zero(exported: Export) -> None:
    graphs = exported("plain")
    chat, _ = after(graphs, ids_of(graphs, 9), 32)
    assert not chat.states["kv_cache"][..., 9:, :].any()
    assert chat.states["kv_cache"][..., :9, :].any(axis=(0, 1, 2, 4)).all()


@pytest.mark.parametrize("capacity", [17, 2048])
def test_decode_writes_up_to_the_last_slot(exported: Export, capacity: int) -> None:
    graphs = exported("full_first", capacity=capacity, dtype="fp32")
    growing = exported("full_first", dtype="fp32", fused_prefill=False, fused_decode=False)
    ids = ids_of(graphs, capacity - 6)
    chat, logits = after(graphs, ids, None)
    reference, wanted = after(growing, ids, None)
    for token in ids[:6]:
        logits, wanted = chat.step(token), reference.step(token)
    assert chat.length == capacity
    assert chat.states["kv_cache"][..., capacity - 1, :].any()
    np.testing.assert_allclose(logits, wanted, atol=0.05)


def test_picture_rows_go_to_picture_tokens_in_order(exported: Export) -> None:
    graphs = exported("plain", dtype="fp32", gears=(32, 64))
    config = graphs.config
    ids = ids_of(graphs, 14)
    ids[3:7] = [config.image_token_id] * 4
    ids[9:11] = [config.image_token_id] * 2
    is_image = np.array(ids) == config.image_token_id
    positions, _ = mrope_positions(is_image, [(2, 2), (1, 2)])
    rows = np.random.default_rng(2).standard_normal((16, config.text.hidden_size))
    whole = AscendChat(graphs)
    logits = whole.prefill(ids, positions, rows, gear=32)
    chat = AscendChat(graphs)
    chat.prefill(ids[:5], positions[:, :5], rows[:2], gear=32)
    last = chat.prefill(ids[5:], positions[:, 5:], rows[2:6], gear=32)
    np.testing.assert_allclose(last, logits, atol=5e-3)
    swapped = AscendChat(graphs).prefill(ids, positions, rows[::-1], gear=32)
    assert np.abs(swapped - logits).max() > 0.1


def test_tokens_past_the_capacity_are_refused(exported: Export) -> None:
    graphs = exported("full_first", capacity=17, dtype="fp32")
    chat, _ = after(graphs, ids_of(graphs, 17), None)
    with pytest.raises(CapacityError, match="1 more tokens do not fit: 17 of 17 KV slots"):
        chat.step(1)
    with pytest.raises(CapacityError, match="18 more tokens do not fit: 0 of 17"):
        after(graphs, ids_of(graphs, 18), None)


GRIDS = [(2, 2), (4, 4), (2, 8), (8, 2), (6, 10), (2, 14)]


@pytest.mark.parametrize("gear", [16, 64])
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid[0]}x{grid[1]}")
@pytest.mark.parametrize("shape", ["plain", "even", "narrow_key"])
def test_padding_to_a_gear_leaves_a_picture_of_any_shape_as_it_is(
    exported: Export, shape: str, grid: tuple[int, int], gear: int
) -> None:
    graphs = exported(shape, dtype="fp32", image_gears=(16, 64))
    count = grid[0] * grid[1]
    pixels = np.random.default_rng(count).uniform(-1, 1, (count, graphs.config.tower.patch_width))
    exact = encode_picture(graphs, pixels, grid)
    padded = encode_picture(graphs, pixels, grid, gear)
    assert padded.shape == (count // 4, graphs.config.text.hidden_size)
    np.testing.assert_allclose(padded, exact, atol=2e-5)


def test_fp16_rows_are_near_those_of_fp32(exported: Export) -> None:
    pixels = np.random.default_rng(0).uniform(-1, 1, (24, 1536))
    rows = [
        encode_picture(exported("plain", dtype=dtype), pixels, (4, 6), 16).astype(np.float32)
        for dtype in ("fp16", "fp32")
    ]
    np.testing.assert_allclose(rows[0], rows[1], atol=0.02)
