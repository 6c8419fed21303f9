"""The checkpoint's own head for drafts: its graph beside PyTorch, and what is said with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from q35chat.engine.decoder import extend
from q35chat.engine.one_graph import OneGraphDecoder
from q35chat.user_input import Speculate
from q35export.request import Precision
from q35export.verify import verify
from q35export.verify.reference import EncodedPrompt
from q35export.verify.samples import Sample
from tests.parity.head_reference import HeadInputs
from tests.parity.headed import Headed, RawHead, write
from tests.parity.test_fp32 import assert_same
from tests.support.checkpoints import SHAPES, make_checkpoint
from tests.support.exported import export_checkpoint
from tests.support.golden import SAMPLES, TOKENS, Golden, load
from tests.support.right_head import make_head_right

pytestmark = pytest.mark.parity

SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
NEAR = 1e-3  # of two logits that rounding may put in another order
RIGHT, PARTLY = 0.0, 0.35
# Not tied where the head is right: a tied one would swap two tokens for ever.
APT = [("even", RIGHT), ("narrow_key", RIGHT), ("even", PARTLY), ("plain", PARTLY)]


@pytest.fixture(scope="module", params=SHAPES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return load(request.param)


@pytest.fixture(scope="module")
def headed(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Headed:
    """The golden checkpoint and a head: that changes no weight of the decoder."""
    folder = tmp_path_factory.mktemp(golden.shape)
    checkpoint = make_checkpoint(folder / "in", golden.shape, seed=golden.seed, with_mtp=True)
    return Headed.make(checkpoint, folder / "out")


@pytest.fixture(scope="module", params=APT, ids=str)
def apt(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Headed, float]:
    """A model whose head is right, always or now and then; with little room."""
    shape, gain = request.param
    folder = tmp_path_factory.mktemp(f"{shape}-{gain}")
    checkpoint = make_checkpoint(folder / "checkpoint", shape, seed=2, with_mtp=True)
    make_head_right(checkpoint, gain)
    return Headed.make(checkpoint, folder / "out", capacity=280), gain


@SAMPLE
def test_a_sequence_that_is_put_back_goes_on_to_the_bit_and_with_the_same_drafts(
    headed: Headed, sample: Sample
) -> None:
    decoder = headed.read(headed.reference.encode(sample))
    write(decoder, 9)
    arrays = {name: array.copy() for name, array in decoder.dump(decoder.snapshot())}

    def gone_on() -> tuple[bytes, list[int], tuple[int, ...]]:
        assert decoder.head is not None
        logits = decoder.step(3)
        bits, token = logits.tobytes(), int(logits.argmax())
        drafts = decoder.head.draft(token, 4, decoder.rope_position)
        return bits, drafts, write(decoder, 24)[0]

    wanted = gone_on()
    headed.read(headed.reference.encode(SAMPLES[1]))
    decoder.load(arrays)
    assert gone_on() == wanted


@SAMPLE
def test_the_decoder_tells_the_hidden_states_of_transformers(
    headed: Headed, sample: Sample
) -> None:
    prompt = headed.reference.encode(sample)
    wanted = headed.head.inputs(prompt).hidden
    decoder = headed.decoder
    assert decoder.head is not None
    decoder.reset()
    count = len(wanted)
    positions, embeds = headed.candidate.positions(prompt), headed.candidate.embeds(prompt)
    chunks = decoder.chunks(prompt.ids, positions, embeds)
    for done in chunks:
        last = decoder.head.save()
        assert last is not None
        if done <= count:
            assert_same(last.hidden, wanted[done - 1])
            np.testing.assert_array_equal(last.position, positions[:, done - 1])


@SAMPLE
def test_the_graph_of_the_head_agrees_with_pytorch(headed: Headed, sample: Sample) -> None:
    pairs = headed.head.inputs(headed.reference.encode(sample))
    hidden = headed.head.run(pairs.embeddings, pairs.hidden, pairs.positions)
    logits = headed.head.logits(hidden)
    count = len(pairs.ids)
    for ends in ([count], range(max(1, count - 24), count + 1)):  # whole, and in steps
        graph = RawHead(headed.bundle)
        for end in ends:
            draft, made, said = _run(headed, graph, pairs, end)
            assert_same(made, hidden[end - 1])
            assert_same(said, logits[end - 1])
            assert draft == said.argmax()


def _run(
    headed: Headed, graph: RawHead, pairs: HeadInputs, end: int
) -> tuple[int, np.ndarray, np.ndarray]:
    part = slice(graph.filled, end)
    is_image = pairs.ids[part] == headed.bundle.manifest.model.image_token_id
    rows = pairs.embeddings[part][is_image]
    return graph.run(pairs.ids[part], pairs.hidden[part], pairs.positions[:, part], rows)


@SAMPLE
def test_chained_drafts_are_those_of_pytorch(headed: Headed, sample: Sample) -> None:
    prompt = headed.reference.encode(sample)
    wanted = headed.head.chain(prompt, 4)
    decoder = headed.read(EncodedPrompt(prompt.ids[:-1], prompt.pictures))
    assert decoder.head is not None

    found = decoder.head.draft(int(prompt.ids[-1]), 4, decoder.rope_position)

    for mine, (theirs, logits) in zip(found, wanted, strict=True):
        assert logits[mine] > logits.max() - NEAR
        if mine != theirs:  # a tie: from here on both go their ways
            break


@SAMPLE
def test_greedy_tokens_with_a_random_head_are_those_of_generate(
    headed: Headed, golden: Golden, sample: Sample
) -> None:
    tokens, steps = write(headed.read(headed.reference.encode(sample)), TOKENS)

    assert tokens == golden.case(sample.name).tokens
    assert steps.drafted > TOKENS / 2


@SAMPLE
def test_right_and_wrong_drafts_give_the_tokens_of_generate(
    apt: tuple[Headed, float], sample: Sample
) -> None:
    headed, gain = apt
    prompt = headed.reference.encode(sample)
    count = min(TOKENS, headed.decoder.capacity - len(prompt.ids))
    wanted = headed.reference.greedy(prompt, count).tokens

    tokens, steps = write(headed.read(prompt), count)

    assert tokens == tuple(wanted.tolist())
    if gain == RIGHT:
        assert steps.drafted - steps.accepted < 3  # those beyond the last token
        assert steps.accepted > count / 3
    else:
        assert 0 < steps.accepted < steps.drafted


def test_the_last_slot_is_written(apt: tuple[Headed, float]) -> None:
    headed, _ = apt
    prompt = headed.reference.encode(SAMPLES[2])
    count = headed.decoder.capacity - len(prompt.ids) + 1
    wanted, _ = write(headed.read_plain(prompt), count, "off")

    tokens, steps = write(headed.read(prompt), count)

    assert headed.decoder.used == headed.decoder.capacity
    assert tokens == wanted
    assert steps.accepted > 0


def test_after_going_back_and_going_on_another_way_the_tokens_are_those_without_drafts(
    apt: tuple[Headed, float],
) -> None:
    headed, _ = apt
    prompt, more = headed.reference.encode(SAMPLES[2]), np.array([65, 66, 67])
    beginning, last = EncodedPrompt(prompt.ids[:-1], prompt.pictures), int(prompt.ids[-1])
    decoder, plain = headed.read(beginning), headed.read_plain(beginning)
    start, answers = decoder.snapshot(), []
    decoder.step(last)
    write(decoder, 14)
    decoder.restore(start)
    sides: list[tuple[OneGraphDecoder, Speculate]] = [(decoder, "mtp"), (plain, "off")]
    for each, mode in sides:
        each.step(last)
        answer, _ = write(each, 12, mode)
        each.step(answer[-1])
        extend(each, more, np.tile(each.rope_position + np.arange(3), (3, 1)))
        answers.append((answer, write(each, 20, mode)[0]))

    assert answers[0] == answers[1]


def test_what_was_drafted_before_leaves_no_trace_in_later_drafts(
    apt: tuple[Headed, float],
) -> None:
    headed, _ = apt
    prompt = headed.reference.encode(SAMPLES[0])
    tokens, _ = write(headed.read(prompt), 30)
    assert headed.decoder.head is not None
    place = headed.decoder.rope_position
    found = headed.decoder.head.draft(tokens[-1], 3, place)

    headed.read(EncodedPrompt(np.concatenate([prompt.ids, tokens[:-1]])))

    assert headed.decoder.rope_position == place
    assert headed.decoder.head.draft(tokens[-1], 3, place) == found


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_a_bundle_with_a_head_can_be_compared(tmp_path: Path, precision: Precision) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "plain", seed=1, with_mtp=True)
    bundle = export_checkpoint(checkpoint, tmp_path / "out", precision, mtp=True)
    notes: list[str] = []

    report = verify(bundle.path, checkpoint, tokens=8, threads=1, note=notes.append)

    assert report.passed
    assert any("not compared: transformers has none" in note for note in notes)
