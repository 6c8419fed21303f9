"""What a decoder and a runtime are, for chat, bench and speculation to work with.

A decoder is one sequence in the graphs of a model: read a prompt in chunks, go on by one token, go
back. A runtime opens graphs and makes decoder and encoder of them. Knows neither in which calls a
prompt is read nor which graphs run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import ClassVar, Protocol

from q35chat.engine.calls import Logits, LogitsRow, SequenceGraph
from q35chat.engine.contract import StatePair, TextContract
from q35chat.engine.draft_head import DraftHead
from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.session import Array, GraphSession
from q35chat.engine.slots import PrefixMask, Slots, check_prompt
from q35chat.engine.states import Snapshot, StateBuffers, dumped_place
from q35chat.engine.tokens import Tokens

OpenGraph = Callable[[Path], GraphSession]


class Runnable(Protocol):
    """A call whose inputs are filled but for the mask."""

    def upload(self, mask: PrefixMask) -> None:
        """Upload the mask of all slots."""

    def run(self) -> None:
        """Run once."""


class Decoder(ABC):
    """One sequence: its slots, its states and the logits of what was read last. `sessions`, the
    first of which has the states, are freed together.

    `capacity` are slots in all, `vocab_size` the length V of the logits, `image_width` the length H
    of a row of picture embeddings, None where no pictures are read. `rope_position` is the mRoPE
    position of the next text token, `predict_ms` the time of the last run inside the runtime.
    `reads_in_parts` tells that reading a prompt in several calls costs about as much as in one.
    """

    reads_in_parts: ClassVar[bool]
    image_width: int | None

    def __init__(
        self,
        sessions: tuple[GraphSession, ...],
        contract: TextContract,
        pairs: tuple[StatePair, ...],
        capacity: int,
        image_token_id: int | None,
    ) -> None:
        self._sessions = sessions
        self._contract = contract
        self._image_token_id = image_token_id
        self.capacity = capacity
        self.vocab_size = contract.vocab_size
        self._states = StateBuffers(sessions[0], pairs)
        in_place = any(pair.in_place for pair in pairs)
        self._slots = Slots(capacity, contract.attention_mask.dtype, in_place=in_place)
        logits = Logits.allocated(sessions[0], contract, 1)
        self._graph = SequenceGraph(sessions[0], contract, self._states, logits)
        self._last_row = self._own_row = LogitsRow(logits, 0)
        self.rope_position = 0
        self.predict_ms = 0.0

    @property
    def used(self) -> int:
        """Slots that hold a token of the sequence."""
        return self._slots.count

    @property
    def keys(self) -> Array:
        """What fills the used slots, [used] int64: ids, or what `chunks` was given for them."""
        return self._slots.keys

    @property
    def route(self) -> str:
        """How the last prompt was read, where there was a choice."""
        return ""

    @property
    def speculative(self) -> SpeculativeDecoder | None:
        """This decoder where it can try tokens ahead, else None."""
        return None

    @abstractmethod
    def chunks(
        self,
        ids: Array,
        positions: Array,
        image_embeds: Array | None = None,
        *,
        keys: Array | None = None,
    ) -> Iterator[int]:
        """Read `ids` [T] after what is already there; yield how many, chunk by chunk.

        `positions` [3, T] are mRoPE positions, `image_embeds` [M, H] the rows of the M picture
        tokens among `ids`, `keys` [T] replaces the ids as the identity of the slots. Dropped
        between two chunks, the state is that of the tokens read. Raises before anything runs:
        PromptTooLongError, ImageRowsError, or ValueError for no token at all.
        """

    @abstractmethod
    def step(self, token: int) -> Array:
        """Read one more text token; return the logits [V], a view as of `logits`.

        Raises NoSlotError when every slot is used.
        """

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """A point that `restore` can go back to."""

    def reset(self) -> None:
        """Forget the sequence."""
        self._slots.rewind(0)
        self._states.reset()
        self.rope_position = 0

    def logits(self) -> Array:
        """The logits [V] float32 of the last run, a view that the next run overwrites."""
        return self._last_row.values()

    def maxima(self) -> Array | None:
        """The largest of each block of neighbouring `logits`, [V / B] float32, a view as they are;
        None where the graph does not tell them."""
        return self._last_row.maxima()

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether the KV rows of `snapshot` are still in their slots; caches that grow are never
        written again."""
        return self._contract.capacity is None or self._slots.hold(snapshot.keys)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`, exactly. Raises ValueError when its slots were written again."""
        snapshot.check(held=self.holds(snapshot))
        self._slots.rewind(0)  # no sequence is there until all of it is
        self._states.load(snapshot.states)
        self._slots.rewind(snapshot.count)
        self.rope_position = snapshot.rope_position

    def dump(self, snapshot: Snapshot) -> Iterator[tuple[str, Array]]:
        """`snapshot` with its KV rows as arrays by name, until the next run. Raises ValueError when
        its slots were written again."""
        snapshot.check(held=self.holds(snapshot))
        yield from self._states.dump(snapshot)

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Be where `arrays` were dumped, by a decoder of the same graphs. Snapshots of other tokens
        are lost. Raises ValueError for what does not fit, and then there is no sequence."""
        keys, rope_position = dumped_place(arrays, self.capacity)
        self.reset()
        self._slots.forget_beyond(0)
        try:
            self._fill(arrays, keys)
        except ValueError:
            self.reset()
            raise
        self._slots.rewind(len(keys))
        self._slots.name(len(keys), keys)
        self.rope_position = rope_position

    def _fill(self, arrays: Mapping[str, Array], keys: Array) -> None:
        """Put what was dumped of a sequence of `keys` into its place."""
        self._states.fill(arrays, len(keys))

    def close(self) -> None:
        """Free the graphs; further calls are errors."""
        with ExitStack() as closing:  # each, whatever happens with another
            for session in self._sessions:
                closing.callback(session.close)

    def _new(
        self, ids: Array, positions: Array, image_embeds: Array | None, keys: Array | None
    ) -> Tokens:
        """The arguments of `Decoder.chunks`, once there is room for them."""
        check_prompt(len(ids), self.used, self.capacity)
        return Tokens.of(ids, positions, image_embeds, keys, self._image_token_id)

    def _run(self, call: Runnable, tokens: int) -> None:
        """Take the slots and run. A run that fails leaves the sequence as it was, but not the rows
        beyond it where they are written in place."""
        before = self.used
        self._slots.advance(tokens)
        try:
            call.upload(self._slots)
            started = perf_counter()
            call.run()
        except BaseException:
            self._undo(before)
            raise
        self.predict_ms = (perf_counter() - started) * 1e3

    def _undo(self, before: int) -> None:
        """Have the sequence of `before` slots again, after a run that failed."""
        self._slots.rewind(before)


class SpeculativeDecoder(Decoder):
    """A decoder that runs over several guessed tokens in one go, `most_tokens` with those that are
    read once more. `head` is what drafts; None where there is no such graph."""

    head: DraftHead | None
    most_tokens: int

    @property
    @abstractmethod
    def behind(self) -> int:
        """Tokens that the next run reads once more: others after them were not accepted."""

    @abstractmethod
    def try_ahead(self, tokens: Sequence[int]) -> None:
        """Run over text `tokens` in one go; each is read only by an `accept`, in their order.

        Anything else than `accept` drops those that are left. Raises NoSlotError.
        """

    @abstractmethod
    def accept(self) -> Array:
        """Read the next token tried; return the logits [V] after it, a view as of `logits`."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """What a decoder is told of its model where the graphs do not tell it themselves.

    `image_token_id` is None where no pictures are read; `capacity` bounds a sequence whose cache
    grows; `with_head` says that drafts of the model's own head are wanted; `experts` is how many
    there are in a layer, 0 of a dense model.
    """

    image_token_id: int | None
    vocab_size: int
    capacity: int
    with_head: bool = False
    experts: int = 0


class Runtime(Protocol):
    """What runs the bundles of one target."""

    @property
    def open_graph(self) -> OpenGraph:
        """Loads a graph file. Raises RuntimeFailure."""

    def decoder(self, opened: Callable[[str], GraphSession], model: TextModel) -> Decoder:
        """Over the graphs that `opened` gives by name. Raises BundleError."""

    def encoder(self, session: GraphSession, merge_size: int, width: int | None) -> VisionEncoder:
        """Over the vision graph; `width` is that of a row where the graph does not tell it.
        Raises BundleError, NoGeometryError."""


def extend(
    decoder: Decoder,
    ids: Array,
    positions: Array,
    image_embeds: Array | None = None,
    *,
    keys: Array | None = None,
) -> Array:
    """Read `ids` [T] whole, as `Decoder.chunks` does; the logits [V] of the last, a view."""
    for _ in decoder.chunks(ids, positions, image_embeds, keys=keys):
        pass
    return decoder.logits()
