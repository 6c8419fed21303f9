from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from q35chat.chat.values import SamplingSettings
from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import MOST_TOKENS, OneGraphDecoder
from q35chat.engine.sampling import Sampler, draw
from q35chat.engine.session import Array
from q35chat.engine.speculation import DraftSource, Odds, Speculator, speculator
from q35chat.user_input import Speculate
from tests.doubles.numpy_session import NumpySession

PROMPT = [7, 1, 2, 9, 7, 1, 2, 9, 7, 1]


GREEDY = SamplingSettings(temperature=0.0)


@dataclass(slots=True)
class Script:
    """Drafts what it is told, whatever was said; each once."""

    drafts: list[list[int]]
    strength: int = 2
    milliseconds: float = 0.0

    @property
    def next(self) -> int | None:
        return self.drafts[0][0] if self.drafts else None

    @property
    def ready(self) -> bool:
        return bool(self.drafts)

    def push(self, token: int) -> None:
        pass

    def draft(self, most: int) -> list[int]:
        return self.drafts.pop(0)[:most]


def always(engine: OneGraphDecoder, script: Script) -> Speculator:
    return Speculator(engine, [DraftSource(script, Odds())], always=True)


def softmax(logits: Array) -> Array:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    chances: Array = weights / weights.sum()
    return chances


def opened(capacity: int = 64, *, can_try: bool = True) -> tuple[OneGraphDecoder, NumpySession]:
    session = NumpySession(capacity=capacity, vocab=12, counts=can_try, image_token=-1)
    engine = OneGraphDecoder(session)
    extend(engine, np.array(PROMPT), np.tile(np.arange(len(PROMPT)), (3, 1)))
    return engine, session


def written(
    count: int,
    mode: Speculate,
    rules: SamplingSettings = GREEDY,
    seed: int = 0,
    odds: Odds | None = None,
) -> tuple[list[int], Speculator, OneGraphDecoder]:
    """`count` tokens after the prompt, the last of them not read."""
    engine, _ = opened(len(PROMPT) + count)
    steps = speculator(engine, odds or Odds(), PROMPT, mode)
    sampler = Sampler(rules, PROMPT, seed)
    tokens = [sampler(engine.logits())]
    while len(tokens) < count:
        tokens.append(sampler(steps.step(tokens[-1])))
    return tokens, steps, engine


RULES = [
    GREEDY,
    SamplingSettings(),
    SamplingSettings(temperature=0.4, top_k=5, repetition_penalty=1.3),
    SamplingSettings(temperature=0.7, top_p=0.8, min_p=0.05, presence_penalty=0.5),
]


@given(rules=st.sampled_from(RULES), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_drafts_change_no_token_and_no_state(rules: SamplingSettings, seed: int) -> None:
    wanted, _, plain = written(48, "off", rules, seed)
    found, steps, engine = written(48, "lookup", rules, seed)

    assert found == wanted
    assert steps.drafted > 0
    assert engine.keys.tolist() == plain.keys.tolist()
    states, kept = plain.snapshot().states, engine.snapshot().states
    for name in states:
        np.testing.assert_array_equal(kept[name], states[name])


def test_the_model_repeating_itself_takes_fewer_runs() -> None:
    engine, session = opened()
    cycle = [3, 5, 8, 2]
    session.says = {slot: cycle[slot % 4] for slot in range(64)}
    steps = speculator(engine, Odds(), PROMPT, "lookup")
    token = cycle[(len(PROMPT) - 1) % 4]
    session.runs.clear()
    for _ in range(40):
        token = int(steps.step(token).argmax())

    assert len(session.runs) < 20
    assert steps.accepted > 20


@pytest.mark.parametrize("draft", range(12))
def test_a_draft_is_accepted_with_its_own_probability_and_else_the_rest_keep_their_proportions(
    draft: int,
) -> None:
    """The rule of speculative sampling for a draft that is certain, over every chance there is."""
    engine, _ = opened()
    start = engine.snapshot()
    logits = engine.step(2).copy()
    probabilities = softmax(logits)
    counts: Counter[int] = Counter()
    accepted = 0
    chances = (np.arange(500) + 0.5) / 500
    for chance in chances:
        engine.restore(start)
        steps = always(engine, Script([[draft]]))
        chosen = draw(np.cumsum(softmax(steps.step(2))), float(chance))
        steps.step(chosen)
        accepted += steps.accepted
        counts[chosen] += 1

    share = np.array([counts[token] for token in range(12)]) / len(chances)
    rest, kept = np.delete(probabilities, draft), np.delete(share, draft)
    assert accepted / len(chances) == pytest.approx(probabilities[draft], abs=2 / 500)
    assert kept / kept.sum() == pytest.approx(rest / rest.sum(), abs=0.02)


def test_pairs_of_tokens_come_as_often_with_drafts_as_their_probabilities_say() -> None:
    temperature, count = 0.8, 2_000
    engine, _ = opened()
    start = engine.snapshot()
    first = softmax(engine.step(1) / temperature)
    base = engine.snapshot()
    chances: dict[tuple[int, int], float] = {}
    for token in range(12):
        engine.restore(base)
        second = softmax(engine.step(token) / temperature)
        chances |= {(token, other): first[token] * second[other] for other in range(12)}
    likely = max(chances, key=lambda pair: chances[pair])

    found: Counter[tuple[int, ...]] = Counter()
    tried = accepted = 0
    for seed in range(count):
        engine.restore(start)
        sampler = Sampler(SamplingSettings(temperature), PROMPT, seed)
        steps = always(engine, Script([[*likely]]))
        one = sampler(steps.step(1))
        found[one, sampler(steps.step(one))] += 1
        tried += steps.drafted
        accepted += steps.accepted

    common = {pair: count * chance for pair, chance in chances.items() if count * chance >= 5}
    statistic = sum((found[pair] - wanted) ** 2 / wanted for pair, wanted in common.items())
    assert 0 < accepted < tried
    assert statistic < len(common) + 4 * (2 * len(common)) ** 0.5


@pytest.mark.parametrize("mode", ["lookup", "auto"])
def test_a_graph_that_cannot_try_is_stepped(mode: Speculate) -> None:
    engine, session = opened(can_try=False)
    steps = speculator(engine, Odds(), PROMPT, mode)
    session.runs.clear()
    for token in (2, 9, 7):
        steps.step(token)

    assert session.runs == [1, 1, 1]
    assert steps.drafted == 0


@pytest.mark.parametrize("left", range(1, 12))
def test_the_last_slot_is_used_and_nothing_is_tried_beyond_it(left: int) -> None:
    engine, session = opened(len(PROMPT) + left)
    session.says = dict.fromkeys(range(64), 3)
    steps = speculator(engine, Odds(), [*PROMPT, *[3] * 8], "lookup")
    for _ in range(left):
        steps.step(3)

    assert engine.used == engine.capacity
    plain, _ = opened(len(PROMPT) + left)
    for _ in range(left):
        plain.step(3)
    assert engine.keys.tolist() == plain.keys.tolist()


def test_drafts_that_are_always_wrong_never_make_a_run_long() -> None:
    engine, session = opened(400)
    steps = always(engine, Script([[1] * 7] * 300))
    session.runs.clear()
    for _ in range(100):
        steps.step(2)

    assert max(session.runs) <= MOST_TOKENS
    assert steps.accepted == 0


def test_time_in_the_runtime_is_counted_once() -> None:
    engine, session = opened()
    session.says = dict.fromkeys(range(64), 3)
    steps = speculator(engine, Odds(), [*PROMPT, *[3] * 8], "lookup")
    session.runs.clear()
    times = []
    for _ in range(16):
        steps.step(3)
        times.append(steps.predict_ms)

    assert sum(time > 0 for time in times) == len(session.runs) < 8


def test_what_is_not_worth_it_is_not_tried() -> None:
    odds = Odds()
    for _ in range(30):
        odds.note_run(1, 10.0)
        odds.note_run(4, 41.0)
    _, steps, _ = written(40, "auto", odds=odds)

    assert steps.drafted == 0


def test_without_drafts_nothing_is_tried() -> None:
    _, steps, engine = written(40, "off")

    assert engine.speculative
    assert steps.drafted == 0


@given(first=st.integers(0, 3), second=st.integers(0, 3))
@settings(max_examples=16, deadline=None)
def test_drafts_right_up_to_any_place_give_the_tokens_of_steps(first: int, second: int) -> None:
    wanted, _, _ = written(12, "off")
    wrong = [(token + 1) % 12 for token in wanted]
    engine, session = opened()
    drafts = [
        [*wanted[1 : 1 + first], *wrong[1 + first : 4]],
        [*wanted[2 + first : 2 + first + second], *wrong[2 + first + second : 5 + first]],
    ]
    steps = always(engine, Script(drafts))
    tokens = [int(engine.logits().argmax())]
    session.runs.clear()
    while len(tokens) < 12:
        tokens.append(int(steps.step(tokens[-1]).argmax()))

    assert tokens == wanted
    assert steps.accepted == first + second
