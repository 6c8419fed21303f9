"""What a decoder and a runtime are: the protocols that chat, bench and speculation work with.

A decoder is one sequence in the graphs of a model: read a prompt in chunks, go on by one token, go
back. A runtime opens graphs and makes decoder and encoder of them. Knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from q35chat.engine.draft_head import DraftHead
from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.session import Array, GraphSession
from q35chat.engine.states import Snapshot

OpenGraph = Callable[[Path], GraphSession]


class Decoder(Protocol):
    """One sequence: its slots, its states and the logits of what was read last."""

    @property
    def capacity(self) -> int:
        """Slots in all."""

    @property
    def vocab_size(self) -> int:
        """Length V of the logits."""

    @property
    def image_width(self) -> int | None:
        """Length H of a row of picture embeddings, None where no pictures are read."""

    @property
    def used(self) -> int:
        """Slots that hold a token of the sequence."""

    @property
    def keys(self) -> Array:
        """What fills the used slots, [used] int64: ids, or what `chunks` was given for them."""

    @property
    def rope_position(self) -> int:
        """The mRoPE position of the next text token."""

    @property
    def predict_ms(self) -> float:
        """The time of the last run inside the runtime, in milliseconds."""

    @property
    def reads_in_parts(self) -> bool:
        """Whether reading a prompt in several calls costs about as much as in one."""

    @property
    def route(self) -> str:
        """How the last prompt was read where there was a choice; empty where there was none."""

    @property
    def speculative(self) -> SpeculativeDecoder | None:
        """This decoder where it can try tokens ahead, else None."""

    def reset(self) -> None:
        """Forget the sequence."""

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

    def step(self, token: int) -> Array:
        """Read one more text token; return the logits [V], a view as of `logits`.

        Raises NoSlotError when every slot is used.
        """

    def logits(self) -> Array:
        """The logits [V] float32 of the last run, a view that the next run overwrites."""

    def maxima(self) -> Array | None:
        """The largest of each block of neighbouring `logits`, [V / B] float32, a view as they are;
        None where the graph does not tell them."""

    def snapshot(self) -> Snapshot:
        """A point that `restore` can go back to."""

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether the KV rows of `snapshot` are still in their slots."""

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`, exactly. Raises ValueError when its slots were written again."""

    def dump(self, snapshot: Snapshot) -> Iterator[tuple[str, Array]]:
        """`snapshot` with its KV rows as arrays by name, until the next run. Raises ValueError when
        its slots were written again."""

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Be where `arrays` were dumped, by a decoder of the same graphs. Snapshots of other tokens
        are lost. Raises ValueError for what does not fit, and then there is no sequence."""

    def close(self) -> None:
        """Free the graphs; further calls are errors."""


class SpeculativeDecoder(Decoder, Protocol):
    """A decoder that runs over several guessed tokens in one go."""

    @property
    def head(self) -> DraftHead | None:
        """What drafts; None where there is no such graph."""

    @property
    def behind(self) -> int:
        """Tokens that the next run reads once more: others after them were not accepted."""

    def try_ahead(self, tokens: Sequence[int]) -> None:
        """Run over text `tokens` in one go; each is read only by an `accept`, in their order.

        Anything else than `accept` drops those that are left. Raises NoSlotError.
        """

    def accept(self) -> Array:
        """Read the next token tried; return the logits [V] after it, a view as of `logits`."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """What a decoder is told of its model where the graphs do not tell it themselves.

    `image_token_id` is None where no pictures are read; `capacity` bounds a sequence whose cache
    grows; `with_head` says that drafts of the model's own head are wanted.
    """

    image_token_id: int | None
    vocab_size: int
    capacity: int
    with_head: bool = False


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
