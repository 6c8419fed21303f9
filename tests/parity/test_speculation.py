"""Tokens computed several at a time are the tokens of steps, on the real graphs of every shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from q35chat.chat.values import SamplingSettings
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.engine.sampling import Sampler
from q35chat.engine.session import Array
from q35chat.engine.speculation import Drafter, DraftSource, Odds, PromptLookup, Speculator
from q35export.request import Precision
from q35export.verify.candidate import Candidate
from q35export.verify.metrics import difference
from q35export.verify.reference import EncodedPrompt
from q35export.verify.samples import Sample
from tests.doubles.guesses import Guesses
from tests.parity.live import Live
from tests.parity.test_fp32 import assert_same
from tests.support.checkpoints import SHAPES
from tests.support.exported import export_golden
from tests.support.golden import SAMPLES, TOKENS
from tests.support.pairs import in_turn

pytestmark = pytest.mark.parity

SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
# A projection rounds its inputs by 0.54 % of themselves; these checkpoints have up to 29 in a row.
INT8_INPUTS = 0.0054 * 29**0.5 * 1.5
RULES = SamplingSettings(top_k=40, top_p=0.95, presence_penalty=0.3, repetition_penalty=1.1)
WRONG = (0.0, 0.3, 1.0)


def share_of_wrong(live: Live, sample: Sample) -> float:
    return in_turn(WRONG, list(SHAPES).index(live.exported.golden.shape), SAMPLES.index(sample))


class Greedy:
    """Always the likeliest token."""

    def __call__(self, logits: Array) -> int:
        return int(logits.argmax())


def read(candidate: Candidate, prompt: EncodedPrompt) -> OneGraphDecoder:
    decoder = candidate.new_decoder()
    extend(decoder, prompt.ids, candidate.positions(prompt), candidate.embeds(prompt))
    return decoder


def write(
    decoder: OneGraphDecoder,
    sampler: Sampler | Greedy,
    drafter: Drafter | None,
    count: int = TOKENS,
) -> tuple[tuple[int, ...], Speculator]:
    """`count` tokens, the last of them not read."""
    sources = [] if drafter is None else [DraftSource(drafter, Odds())]
    steps = Speculator(decoder, sources, always=True)
    tokens = [sampler(decoder.logits())]
    while len(tokens) < count:
        tokens.append(sampler(steps.step(tokens[-1])))
    return tuple(tokens), steps


@SAMPLE
def test_greedy_tokens_are_those_of_generate(live: Live, sample: Sample) -> None:
    wanted, wrong = live.tokens(sample.name), share_of_wrong(live, sample)
    decoder = read(live.candidate, live.reference.encode(sample))

    tokens, steps = write(decoder, Greedy(), Guesses(wanted, wrong))

    assert tokens == wanted
    assert steps.drafted > 0
    assert (steps.accepted > 0) == (wrong < 1.0)


@SAMPLE
def test_prompt_lookup_gives_the_tokens_of_generate(live: Live, sample: Sample) -> None:
    prompt = live.reference.encode(sample)
    wanted = live.tokens(sample.name)
    history = [*wanted[::2], *wanted[5:40], *prompt.ids.tolist()]

    tokens, steps = write(read(live.candidate, prompt), Greedy(), PromptLookup(history))

    assert tokens == wanted
    assert 0 < steps.accepted < steps.drafted


@SAMPLE
def test_the_state_after_right_and_wrong_guesses_is_that_of_steps(
    live: Live, sample: Sample
) -> None:
    prompt = live.reference.encode(sample)
    wanted = live.tokens(sample.name)
    plain, ahead = (read(live.candidate, prompt) for _ in range(2))
    write(plain, Greedy(), None)
    write(ahead, Greedy(), Guesses(wanted, 0.3))

    assert ahead.keys.tolist() == plain.keys.tolist()
    expected, found = plain.snapshot(), ahead.snapshot()
    for name, state in expected.states.items():
        assert_same(found.states[name], state)
    assert_same(ahead.step(3), plain.step(3))


@SAMPLE
def test_seeded_samples_are_those_of_steps(live: Live, sample: Sample) -> None:
    prompt, wrong = live.reference.encode(sample), share_of_wrong(live, sample)
    ids = prompt.ids.tolist()
    wanted, _ = write(read(live.candidate, prompt), Sampler(RULES, ids, 7), None)

    tokens, steps = write(
        read(live.candidate, prompt), Sampler(RULES, ids, 7), Guesses(wanted, wrong)
    )

    assert tokens == wanted
    assert steps.drafted > 0


def test_the_last_slot_is_written(live: Live) -> None:
    prompt = live.reference.encode(SAMPLES[0])
    decoder, plain = (read(live.candidate, prompt) for _ in range(2))
    count = decoder.capacity - decoder.used + 1
    wanted, _ = write(plain, Greedy(), None, count)

    tokens, _ = write(decoder, Greedy(), Guesses(wanted, 0.2), count)

    assert decoder.used == decoder.capacity
    assert tokens[:TOKENS] == wanted[:TOKENS]
    assert tokens == wanted


@pytest.fixture(scope="module", params=[(s, p) for s in SHAPES for p in ("int8", "int4")], ids=str)
def quantised(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Candidate, list[EncodedPrompt]]:
    shape: str
    precision: Precision
    shape, precision = request.param
    exported = export_golden(shape, tmp_path_factory, precision)
    prompts = [exported.prompt(exported.golden.case(sample.name)) for sample in SAMPLES]
    return Candidate(exported.bundle, threads=1), prompts


def test_quantised_graphs_differ_by_the_rounding_of_inputs_only(
    quantised: tuple[Candidate, list[EncodedPrompt]],
) -> None:
    candidate, prompts = quantised
    for prompt in prompts:
        wanted, _ = write(read(candidate, prompt), Greedy(), None, 16)
        stepped = tried(read(candidate, prompt), wanted, 1)
        for count in (2, 4, 8, 16):
            found = tried(read(candidate, prompt), wanted, count)
            assert difference(found, stepped).nrmse < INT8_INPUTS


def tried(decoder: OneGraphDecoder, tokens: Sequence[int], count: int) -> Array:
    """Logits [N, V] after each of `tokens`, tried `count` at a time."""
    rows = []
    for begin in range(0, len(tokens), count):
        part = tokens[begin : begin + count]
        decoder.try_ahead(part)
        rows += [decoder.accept().copy() for _ in part]
    return np.stack(rows)


def test_logits_of_several_tokens_differ_from_those_of_steps_by_rounding_only(live: Live) -> None:
    prompt = live.reference.encode(SAMPLES[0])
    wanted = live.tokens(SAMPLES[0].name)
    plain, ahead = (read(live.candidate, prompt) for _ in range(2))
    ahead.try_ahead(wanted[:8])
    for token in wanted[:8]:
        np.testing.assert_allclose(ahead.accept(), plain.step(token), atol=1e-4)
