from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from q35chat.engine.contract import read_contract
from q35chat.engine.session import TensorSpec
from q35chat.errors import BundleError
from tests.doubles.numpy_session import FLOAT, NumpySession


@dataclass
class Edited(NumpySession):
    """A numpy graph with one declared tensor changed or left out."""

    name: str = ""
    shape: tuple[int | None, ...] | None = None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._edit(NumpySession.inputs.fget(self))  # type: ignore[attr-defined]

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._edit(NumpySession.outputs.fget(self))  # type: ignore[attr-defined]

    def _edit(self, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(spec, shape=self.shape) if spec.name == self.name and self.shape else spec
            for spec in specs
            if spec.name != self.name or self.shape
        )


def test_roles_states_and_sizes_are_read_from_the_graph() -> None:
    contract = read_contract(NumpySession(capacity=16, vocab=23, rows=4))

    assert (contract.capacity, contract.vocab_size, contract.position_rows) == (16, 23, 4)
    assert [pair.past for pair in contract.pairs if pair.cache] == ["past_key_1", "past_value_1"]
    assert [pair.past for pair in contract.pairs if not pair.cache] == [
        "past_conv_0",
        "past_recurrent_0",
    ]
    assert all(pair.in_place == pair.cache for pair in contract.pairs)
    assert all(pair.may_alias != pair.cache for pair in contract.pairs)


class WithRows(NumpySession):
    """A numpy graph that has rows of its caches as inputs of their own."""

    def __init__(
        self, *names: str, part: str = "4", in_place: bool = True, key: str = "q35chat.filled_part"
    ) -> None:
        super().__init__(in_place=in_place)
        self.names = names
        self.metadata[key] = part

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        shapes = {"key": (None, 6), "value": (None, 1, None, 6)}
        rows = (
            TensorSpec(name, shapes.get(name.split("_")[1], (None, 6)), FLOAT)
            for name in self.names
        )
        return (*NumpySession.inputs.fget(self), *rows)  # type: ignore[attr-defined]


def test_rows_of_a_cache_are_read_from_many_tokens_on_the_next_one_too_in_equal_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("q35chat.engine.contract._WORTH_SLOTS", 11)
    monkeypatch.setattr("q35chat.engine.contract._ROWS", 2)
    contract = read_contract(WithRows("filled_key_1_0", "filled_value_1_0", part="8"))

    assert [(one.past, one.head, one.in_parts) for one in contract.filled] == [
        ("past_key_1", 0, False),
        ("past_value_1", 0, True),
    ]
    assert [contract.filled_parts(used) for used in (0, 10, 11, 12, 15, 16)] == [
        (0, 0), (0, 0), (2, 6), (2, 8), (2, 8), (2, 8),
    ]  # fmt: skip
    assert read_contract(NumpySession()).filled_parts(15) == (0, 0)


def test_an_older_graph_that_has_rows_in_blocks_reads_its_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("q35chat.engine.contract._WORTH_SLOTS", 0)
    older = WithRows("filled_key_1_0", "filled_value_1_0", key="q35chat.filled_block")
    contract = read_contract(older)

    assert len(contract.filled) == 2
    assert contract.filled_parts(15) == (0, 0)


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (WithRows("filled_key_1_1"), "filled_key_1_1 is no head of a KV cache in place"),
        (WithRows("filled_key_1"), "filled_key_1 is no head of a KV cache in place"),
        (WithRows("filled_conv_0_0"), "filled_conv_0_0 is no head of a KV cache in place"),
        (WithRows("filled_key_1_0", in_place=False), "is no head of a KV cache in place"),
        (WithRows("filled_key_1_0", part="5"), "parts of 5 slots do not fill 16"),
        (WithRows("filled_key_1_0", part="0"), "parts of 0 slots do not fill 16"),
        (WithRows("filled_key_1_0", part=""), "parts of no slots do not fill 16"),
    ],
)
def test_rows_of_no_cache_and_parts_that_do_not_fill_one_are_refused(
    session: WithRows, message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        read_contract(session)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("aliases", ["", "past_conv_0", "past_conv_0,past_recurrent_0"])
def test_states_are_written_over_only_where_all_of_them_can_be(
    aliases: str, in_place: bool
) -> None:
    session = NumpySession(in_place=in_place)
    session.metadata["q35chat.may_alias"] = aliases

    assert read_contract(session).may_overwrite is (in_place and "recurrent" in aliases)


class Growing(NumpySession):
    """A graph whose cache has no fixed number of slots; `present` is its declared shape."""

    present: tuple[int | None, ...] = (1, 1, None, 6)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        ids, _, *kept = NumpySession.inputs.fget(self)[:4]  # type: ignore[attr-defined]
        mask = TensorSpec("attention_mask", (1, None), np.dtype(np.int32))
        return (ids, mask, *kept, TensorSpec("past_key_1", (1, 1, None, 6), FLOAT))

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        logits = TensorSpec("logits", (1, 1, 23), FLOAT)
        return (logits, TensorSpec("present_key_1", self.present, FLOAT))


@pytest.mark.parametrize("present", [(1, 1, None, 6), ()])
def test_a_free_axis_of_slots_is_a_cache_that_grows(present: tuple[int | None, ...]) -> None:
    session = Growing(in_place=False, aliases=False)
    session.present = present
    contract = read_contract(session)

    assert contract.capacity is None
    assert [(pair.grows, pair.shape) for pair in contract.pairs] == [(True, (1, 1, 0, 6))]


def test_a_vocabulary_that_the_graph_does_not_tell_is_given() -> None:
    assert read_contract(Lost(), 23).vocab_size == 23
    with pytest.raises(BundleError, match="axis -1 of logits"):
        read_contract(Lost())


class Lost(NumpySession):
    """A graph whose outputs have no rank before it has run."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        kept = NumpySession.outputs.fget(self)  # type: ignore[attr-defined]
        return tuple(replace(spec, shape=()) for spec in kept)


def test_a_cache_that_grows_into_a_fixed_one_is_refused() -> None:
    session = Growing(in_place=False, aliases=False)
    session.present = (1, 1, 16, 6)

    with pytest.raises(BundleError, match="past_key_1 is float32"):
        read_contract(session)


def test_dtypes_are_the_graphs_own() -> None:
    contract = read_contract(NumpySession(integers=np.dtype(np.int32)))

    assert contract.input_ids.dtype == np.int32


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("attention_mask", (1, 12), "attention_mask has 12 slots but past_key_1 has 16"),
        ("attention_mask", (1, None), "axis -1 of attention_mask (1, None) must be fixed"),
        ("past_key_1", (1, 1, 12, 6), "past_key_1 is float32(1, 1, 12, 6) but present_key_1"),
        ("present_value_1", (1, 1, 12, 6), "present_value_1 is float32(1, 1, 12, 6)"),
        ("present_conv_0", None, "no tensor 'present_conv_0'"),
        ("past_conv_0", None, "states that come out without going in: present_conv_0"),
        ("logits", None, "no tensor 'logits'"),
        ("logits", (1, 1, None), "axis -1 of logits"),
        ("position_ids", (2, 1, None), "position_ids has 2 rows, expected 3 or 4"),
        ("past_key_1", None, "promised in place: past_key_1"),
    ],
)
def test_graphs_that_contradict_themselves_are_refused(
    name: str, shape: tuple[int | None, ...] | None, message: str
) -> None:
    with pytest.raises(BundleError) as error:
        read_contract(Edited(name=name, shape=shape, aliases=False))

    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"q35chat.contract": "2"}, "contract version '2', this program reads '1'"),
        ({"q35chat.graph": "vision"}, "expected a text graph, found a vision graph"),
        ({"q35chat.in_place": "past_conv_0"}, "past_conv_0 is promised in place but is no KV"),
        ({"q35chat.may_alias": "past_conv_9"}, "states promised in place: past_conv_9"),
        ({"q35chat.may_alias": "past_key_1"}, "in place but need not: past_key_1"),
    ],
)
def test_metadata_of_another_kind_is_refused(metadata: dict[str, str], message: str) -> None:
    session = NumpySession()
    session.metadata.update(metadata)

    with pytest.raises(BundleError, match=message):
        read_contract(session)


def test_a_graph_without_a_contract_version_is_refused() -> None:
    session = NumpySession()
    del session.metadata["q35chat.contract"]

    with pytest.raises(BundleError, match="contract version none"):
        read_contract(session)
