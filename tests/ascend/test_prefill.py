from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from q35chat.ascend.gears import Gear
from q35chat.ascend.prefill import PrefillContract, check_stacked, read_prefill
from q35chat.engine.contract import TextContract, read_contract
from q35chat.engine.session import GraphSession, TensorSpec
from q35chat.engine.slots import CapacityMismatchError
from q35chat.errors import BundleError

HALF, FLOAT, INT = (np.dtype(kind) for kind in (np.float16, np.float32, np.int32))
Shape = tuple[int | None, ...]
STATES: dict[str, tuple[Shape, np.dtype[Any]]] = {
    "conv_states": ((3, 1, 8, 3), HALF),
    "recurrent_states": ((3, 1, 2, 4, 4), FLOAT),
    "kv_cache": ((2, 1, 1, 16, 4), HALF),
}


@dataclass
class Declared:
    """What a session says of itself; it cannot run."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: dict[str, str] = field(default_factory=dict)


def states(side: str, **changed: Shape) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(f"{side}_{name}", changed.get(name, shape), dtype)
        for name, (shape, dtype) in STATES.items()
    )


def decode(slots: int | None = 16) -> TextContract:
    after = (2, 1, 1, slots, 4)
    session = Declared(
        (
            TensorSpec("input_ids", (1, 1), INT),
            TensorSpec("attention_mask", (1, slots), INT),
            TensorSpec("position_ids", (4, 1, 1), INT),
            *states("past", kv_cache=after),
        ),
        (TensorSpec("logits", (1, 1, 20), HALF), *states("present", kv_cache=after)),
        {"q35chat.contract": "1", "q35chat.graph": "decode"},
    )
    return read_contract(as_session(session))


def prefill(*, stateful: bool = True, tokens: int | None = None) -> Declared:
    pasts = (*states("past"), TensorSpec("past_len", (1,), INT)) if stateful else ()
    return Declared(
        (
            TensorSpec("input_ids", (1, tokens), INT),
            TensorSpec("attention_mask", (1, tokens), INT),
            TensorSpec("position_ids", (4, 1, tokens), INT),
            TensorSpec("image_embeds", (None, 6), HALF),
            *pasts,
        ),
        (TensorSpec("logits", (1, 1, 20), HALF), *states("present")),
        {
            "q35chat.contract": "1",
            "q35chat.graph": "prefill",
            "q35chat.gear_shapes": "input_ids:1=8,image_embeds:0=4;input_ids:1=32,image_embeds:0=4",
        },
    )


def as_session(declared: Declared) -> GraphSession:
    return declared  # type: ignore[return-value]


def read(declared: Declared, contract: TextContract | None = None) -> PrefillContract:
    return read_prefill(as_session(declared), contract or decode())


def changed(declared: Declared, name: str, shape: Shape | None) -> Declared:
    """With another shape for the tensor `name`, or without it."""

    def edited(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        kept = [spec for spec in specs if spec.name != name or shape is not None]
        return tuple(
            replace(spec, shape=shape) if spec.name == name and shape is not None else spec
            for spec in kept
        )

    return Declared(edited(declared.inputs), edited(declared.outputs), declared.metadata)


def test_a_prefill_is_known_by_its_inputs_outputs_and_gears() -> None:
    found = read(prefill())

    assert (found.stateful, found.every_token, found.position_rows) == (True, False, 4)
    assert found.gears == (Gear(8, 4), Gear(32, 4))
    assert found.image_width == 6
    assert not read(prefill(stateful=False)).stateful


@pytest.mark.parametrize("shape", [(1, None, 20), (1, 32, 20), ()])
def test_logits_of_every_token_are_seen(shape: Shape) -> None:
    other = changed(prefill(stateful=False), "logits", shape)

    assert read(other).every_token
    other.metadata["q35chat.logits"] = "last"
    assert read(other).every_token == bool(shape)


def test_a_graph_with_states_has_logits_of_the_last_token_where_the_rank_is_lost() -> None:
    assert not read(changed(prefill(), "logits", ())).every_token


def test_a_graph_of_fixed_length_has_that_gear() -> None:
    fixed = prefill(tokens=32)
    del fixed.metadata["q35chat.gear_shapes"]

    assert read(fixed).gears == (Gear(32, 1),)


def test_a_graph_of_any_length_has_none() -> None:
    free = prefill()
    del free.metadata["q35chat.gear_shapes"]

    assert read(free).gears == ()


def test_a_state_of_lost_rank_is_taken_to_be_decodes() -> None:
    lost = changed(prefill(stateful=False), "present_kv_cache", ())

    assert not read(lost).stateful


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("input_ids", None, "no tensor 'input_ids'"),
        ("logits", None, "has 3 outputs"),
        ("present_kv_cache", None, "has 3 outputs"),
        ("position_ids", (2, 1, None), "2 rows, expected 3 or 4"),
        ("present_conv_states", (3, 1, 9, 3), "different states: present_conv_states is"),
        ("past_conv_states", (3, 1, 9, 3), "different states"),
        ("past_kv_cache", None, "different states"),
    ],
)
def test_graphs_that_do_not_belong_together_are_refused(
    name: str, shape: Shape | None, message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        read(changed(prefill(), name, shape))


def test_another_capacity_is_its_own_refusal() -> None:
    other = changed(prefill(stateful=False), "present_kv_cache", (2, 1, 1, 32, 4))

    with pytest.raises(CapacityMismatchError, match="prefill graph has 32 slots, decode graph 16"):
        read(other)


def test_a_capacity_that_only_the_maker_tells_is_checked_too() -> None:
    lost = changed(prefill(stateful=False), "present_kv_cache", ())
    lost.metadata["q35chat.capacity"] = "32"

    with pytest.raises(CapacityMismatchError, match="prefill graph has 32 slots, decode graph 16"):
        read(lost)


def test_a_growing_decode_takes_a_stateless_prefill_of_any_slots() -> None:
    grown = changed(prefill(stateful=False), "present_kv_cache", (2, 1, 1, None, 4))

    assert not read(grown, decode(None)).stateful
    with pytest.raises(BundleError, match="different states"):
        read(prefill(), decode(None))


def test_another_kind_of_graph_is_refused() -> None:
    wrong = prefill()
    wrong.metadata["q35chat.graph"] = "vision"

    with pytest.raises(BundleError, match="expected a prefill graph, found a vision graph"):
        read(wrong)


@pytest.mark.parametrize("more", [(), ("present_recurrent_states", "extra")])
def test_stacked_states_come_out_of_exactly_four_outputs(more: tuple[str, ...]) -> None:
    names = ("logits", "present_conv_states", "present_kv_cache", *more)

    with pytest.raises(BundleError, match=rf"{len(names)} outputs .* exactly four are wanted"):
        check_stacked({name: TensorSpec(name, (1, 1, 1), HALF) for name in names})
