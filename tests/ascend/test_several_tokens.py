"""Steps of several tokens: guessed ones are tried together, and only those accepted are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from q35chat.ascend.decoder import GearedDecoder
from q35chat.ascend.options import NpuOptions
from q35chat.engine.session import Array
from q35chat.engine.slots import NoSlotError
from q35chat.engine.speculation import DraftSource, Odds, Speculator
from tests.ascend.conftest import Export
from tests.ascend.decoding import HOST, IDS, SHAPE, Open, greedy, read
from tests.doubles.guesses import Guesses
from tests.doubles.mindspore_lite.npu import Npu
from tests.support.ascend import AscendChat
from tests.support.lite import GuessedCosts

SEVERAL: dict[str, Any] = {"step_tokens": 4}
ONE: dict[str, Any] = {**SEVERAL, "gears": (1, 8, 16, 32)}
STATELESS: dict[str, Any] = {**SEVERAL, "stateless_prefill": True}
WAYS = ("two graphs", "one graph", "stateless")
ROUNDING = 0.02


def opened(graphs: Open, way: str = "two graphs", **arguments: Any) -> GearedDecoder:
    """A decoder whose steps may have several tokens."""
    options = {"two graphs": SEVERAL, "one graph": ONE, "stateless": STATELESS}[way]
    made = graphs({**options, "capacity": arguments.pop("capacity", 64)}, **arguments)
    if way != "one graph":
        return made.decoder()
    vocab = made.decoder().vocab_size
    prefill = made.session("prefill")
    return GearedDecoder(None, prefill, costs=GuessedCosts(), vocab_size=vocab)


def dumped(decoder: GearedDecoder) -> dict[str, Array]:
    return {name: array.copy() for name, array in decoder.dump(decoder.snapshot())}


def followed(decoder: GearedDecoder, said: Sequence[int], wrong: float) -> Speculator:
    """Write what another decoder `said` with guesses of it; the choice must be the same wherever
    its first leads by more than rounding. The last token is not read."""
    steps = Speculator(decoder, [DraftSource(Guesses(said, wrong), Odds())], always=True)
    logits = read(decoder, IDS)
    for token, after in zip(said, [*said[1:], None], strict=True):
        assert logits.max() - logits[token] <= 2 * ROUNDING
        if after is not None:
            logits = steps.step(token)
    return steps


def test_logits_and_states_of_several_tokens_are_those_of_steps_within_rounding(
    exported: Export,
) -> None:
    usual, several = (
        AscendChat(exported(SHAPE, **options)) for options in ({"gears": (8,)}, SEVERAL)
    )
    for chat in (usual, several):
        chat.prefill(IDS)
    for tokens in ([5, 9], [20, 4, 7, 30], [1], [2, 2, 2]):
        found = several.steps(tokens)
        wanted = [usual.step(token) for token in tokens]
        np.testing.assert_allclose(found, wanted, atol=ROUNDING)
    assert usual.states.keys() == several.states.keys()
    for name, state in usual.by_layer().items():
        np.testing.assert_allclose(several.by_layer()[name], state, atol=ROUNDING)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_was_tried_only_what_was_accepted_was_read(graphs: Open, way: str) -> None:
    decoder, plain = opened(graphs, way), opened(graphs, way)
    for each in (decoder, plain):
        read(each, IDS)
    for tokens, accepted in (
        ([1, 4, 8, 15], 4),
        ([3, 5, 7], 1),
        ([9, 2], 0),
        ([9, 2], 2),
        ([6], 0),
    ):
        decoder.try_ahead(tokens)
        for token in tokens[:accepted]:
            np.testing.assert_allclose(decoder.accept(), plain.step(token), atol=ROUNDING)
        assert decoder.used == plain.used
        assert decoder.rope_position == plain.rope_position

    found, wanted = dumped(decoder), dumped(plain)
    assert found["keys"].tolist() == wanted["keys"].tolist()
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, atol=ROUNDING)
    np.testing.assert_allclose(decoder.step(20), plain.step(20), atol=ROUNDING)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("device", [NpuOptions(), HOST])
def test_a_rejected_token_leaves_no_bit_behind(graphs: Open, way: str, device: NpuOptions) -> None:
    """Runs of the same shapes that differ in what was rejected alone."""
    after = []
    for wrong in ([8, 15], [40, 41]):
        decoder = opened(graphs, way, device=device)
        read(decoder, IDS)
        decoder.try_ahead([4, *wrong])
        decoder.accept()
        logits = decoder.step(7).copy()
        decoder.try_ahead(wrong)
        after.append({**dumped(decoder), "logits": logits})
    first, second = after
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
def test_greedy_tokens_are_those_of_steps_up_to_the_last_slot(
    graphs: Open, way: str, wrong: float
) -> None:
    plain = opened(graphs, way, capacity=40)
    count = plain.capacity - len(IDS) + 1
    wanted = greedy(plain, read(plain, IDS), count)
    decoder = opened(graphs, way, capacity=40)
    steps = followed(decoder, wanted, wrong)

    assert decoder.used == decoder.capacity
    assert steps.drafted > 0
    assert (steps.accepted > 0) == (wrong < 1.0)
    with pytest.raises(NoSlotError, match="all 40 slots are used"):
        decoder.try_ahead([1])


def test_fewer_runs_are_needed_where_guesses_come_true(graphs: Open, npu: Npu) -> None:
    plain = opened(graphs)
    wanted = greedy(plain, read(plain, IDS), 25)
    decoder = opened(graphs)
    before = npu.predicts
    followed(decoder, wanted, 0.0)

    assert npu.predicts - before <= 1 + 24 / 4 + 1
    assert npu.aliased == 0


def test_going_back_after_a_try_is_exact(graphs: Open) -> None:
    decoder = opened(graphs)
    read(decoder, IDS)
    decoder.try_ahead([4, 8, 15])
    decoder.accept()
    snapshot = decoder.snapshot()
    first = decoder.step(7).copy()
    decoder.try_ahead([1, 2])
    decoder.accept()
    decoder.restore(snapshot)

    assert decoder.behind == 0
    np.testing.assert_array_equal(decoder.step(7), first)


def test_a_prompt_after_a_try_is_read_behind_what_was_accepted(graphs: Open) -> None:
    decoder, plain = opened(graphs), opened(graphs)
    for each in (decoder, plain):
        read(each, IDS)
    decoder.try_ahead([4, 8, 15])
    decoder.accept()
    plain.step(4)

    np.testing.assert_allclose(read(decoder, IDS[:5]), read(plain, IDS[:5]), atol=ROUNDING)
    assert decoder.keys.tolist() == plain.keys.tolist()


def test_one_graph_at_a_time_and_refused_outputs_give_the_same_bits(graphs: Open, npu: Npu) -> None:
    first = opened(graphs)
    wanted = greedy(first, read(first, IDS), 24)
    first.reset()
    followed(first, wanted, 0.3)
    swapping = opened(graphs, mode="swap")
    followed(swapping, wanted, 0.3)
    npu.given_outputs = "refuse"
    refused = opened(graphs)
    followed(refused, wanted, 0.3)

    found = dumped(first)
    for other in (swapping, refused):
        for name, array in dumped(other).items():
            np.testing.assert_array_equal(array, found[name], err_msg=name)


@pytest.mark.parametrize(
    ("options", "kernels", "most"),
    [({}, "", 1), (SEVERAL, "", 4), (SEVERAL, "single-steps", 1), (ONE, "", 4)],
)
def test_what_a_step_can_have_is_told_by_its_gears_and_the_kernels(
    graphs: Open, options: dict[str, Any], kernels: str, most: int
) -> None:
    decoder = graphs(options, kernels=kernels).decoder()

    assert decoder.most_tokens == most
    assert (decoder.speculative is None) == (most == 1)
