"""The decoder of one graph that reads prompts in chunks, steps, and tries guessed tokens.

Owns the positions and the order of things. Knows no runtime, no tokenizer and no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from q35chat.engine.calls import Call, Logits
from q35chat.engine.contract import NO_PARTS, Parts, fixed_axis, read_contract
from q35chat.engine.decoder import OpenGraph, SpeculativeDecoder, TextModel
from q35chat.engine.draft_head import DraftHead
from q35chat.engine.encoder import VisionEncoder
from q35chat.engine.look_ahead import LookAhead
from q35chat.engine.session import Array, GraphSession
from q35chat.engine.states import Snapshot
from q35chat.engine.tokens import Tokens
from q35chat.errors import BundleError

DEFAULT_CHUNK = 64
EXPERTS_CHUNK = 128
"""Of a mixture, whose experts share out the tokens of a chunk: each reads its weights for a few."""
MOST_TOKENS = 12


@dataclass(frozen=True, slots=True)
class OneGraphRuntime:
    """A `Runtime` of bundles with one text graph and a vision graph for any number of patches."""

    open_graph: OpenGraph

    def decoder(self, opened: Callable[[str], GraphSession], model: TextModel) -> OneGraphDecoder:
        """Over the graph "text", and "mtp" for drafts."""
        text = opened("text")
        head = opened("mtp") if model.with_head else None
        chunk = EXPERTS_CHUNK if model.experts else DEFAULT_CHUNK
        return OneGraphDecoder(text, image_token_id=model.image_token_id, head=head, chunk=chunk)

    def encoder(self, session: GraphSession, merge_size: int, width: int | None) -> VisionEncoder:
        """Over the vision graph, which tells the width of a row itself."""
        return VisionEncoder(session, merge_size, width)


class OneGraphDecoder(SpeculativeDecoder):
    """A text graph with the state of one sequence.

    `head` is the graph of the checkpoint's own head for drafts; `image_token_id` marks the tokens
    that take a row of picture embeddings; prompts are read in pieces of `chunk_ends`.
    """

    reads_in_parts = True
    most_tokens = MOST_TOKENS

    def __init__(
        self,
        session: GraphSession,
        *,
        image_token_id: int | None = None,
        head: GraphSession | None = None,
        chunk: int = DEFAULT_CHUNK,
    ) -> None:
        contract = read_contract(session)
        if contract.capacity is None:
            raise BundleError("a decode graph whose cache grows needs a prefill graph")
        sessions = (session,) if head is None else (session, head)
        super().__init__(sessions, contract, contract.pairs, contract.capacity, image_token_id)
        self.head = None if head is None else DraftHead(head, contract)
        images = contract.image_embeds
        self.image_width = None if images is None else fixed_axis(images, -1)
        self._chunk = chunk
        self._overwrites = contract.may_overwrite
        mask = self._slots.array
        self._mask = session.allocate(mask.shape, mask.dtype)
        self._filled = NO_PARTS
        self._step = self._call(1, 0)
        self._ahead = LookAhead(contract, self._states, self._trial)
        self._rows = {1: self._graph.logits}
        self._last_chunk: tuple[tuple[int, int], Call] | None = None
        self._position = np.zeros((3, 1), np.int64)

    @property
    def speculative(self) -> OneGraphDecoder | None:
        """This decoder where its graph gives logits of more than the last token."""
        return self if self._contract.logits_count is not None else None

    @property
    def behind(self) -> int:
        """Tokens that the next run reads once more: others after them were not accepted."""
        return len(self._ahead.behind)

    def reset(self) -> None:
        """Forget the sequence."""
        self._ahead.forget()
        super().reset()
        if self.head is not None:
            self.head.restore(0, None)

    def chunks(
        self,
        ids: Array,
        positions: Array,
        image_embeds: Array | None = None,
        *,
        keys: Array | None = None,
    ) -> Iterator[int]:
        """Read `ids` [T] at `positions` [3, T]; yield how many, chunk by chunk.

        All as `Decoder.chunks` has it.
        """
        new = self._new(ids, positions, image_embeds, keys)
        self._ahead.catch_up(self.used, self.rope_position)
        start = 0
        for end in chunk_ends(len(new), self._chunk):
            self._read(new.part(start, end))
            yield end
            start = end

    def step(self, token: int) -> Array:
        """Read one more text token; return the logits [V], a view as of `logits`.

        Raises NoSlotError when every slot is used.
        """
        if self._ahead.behind:
            self.try_ahead((token,))
            return self.accept()
        self._ahead.forget()
        self._position[:] = self.rope_position
        if self._filled != (parts := self._contract.filled_parts(self.used)):
            self._filled, self._step = parts, self._call(1, 0, parts)
        self._step.load(token, self._position, self.used, None)
        self._run(self._step, 1)
        self._last_row = self._own_row
        self._slots.name(1, token)
        self._tell_head(token, self._position, self._step.hidden)
        self.rope_position += 1
        return self.logits()

    def try_ahead(self, tokens: Sequence[int]) -> None:
        """Run over text `tokens` in one go; each is read only by an `accept`, in their order.

        Anything else than `accept` drops those that are left. Raises NoSlotError.
        """
        self._slots.forget_beyond(self.used)
        self.predict_ms = self._ahead.run(tokens, self.used, self.rope_position)

    def accept(self) -> Array:
        """Read the next token tried; return the logits [V] after it, a view as of `logits`."""
        token = self._ahead.accept()
        self._slots.advance(1)
        self._slots.name(1, token)
        self._position[:] = self.rope_position
        self._tell_head(token, self._position, self._ahead.hidden)
        self.rope_position += 1
        self._last_row = self._ahead.row
        return self.logits()

    def snapshot(self) -> Snapshot:
        """A point that `restore` can go back to."""
        self._ahead.catch_up(self.used, self.rope_position)
        last = None if self.head is None else self.head.save()
        return Snapshot(self._states.save(), self.keys.copy(), self.rope_position, last)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`, exactly. Raises ValueError when its slots were written again."""
        snapshot.check(held=self.holds(snapshot))
        self._ahead.forget()
        super().restore(snapshot)
        if self.head is not None:
            self.head.restore(snapshot.count, snapshot.last)

    def dump(self, snapshot: Snapshot) -> Iterator[tuple[str, Array]]:
        """`snapshot` with its KV rows, and with what the head has of it."""
        yield from super().dump(snapshot)
        if self.head is not None:
            yield from self.head.dump(snapshot.count, snapshot.last)

    def _fill(self, arrays: Mapping[str, Array], keys: Array) -> None:
        """The states, and the head's."""
        super()._fill(arrays, keys)
        if self.head is not None:
            self.head.load(arrays, len(keys))

    def _read(self, chunk: Tokens) -> None:
        """One chunk of a prompt."""
        shape = (len(chunk), 0 if chunk.rows is None else len(chunk.rows))
        if self._last_chunk is None or self._last_chunk[0] != shape:
            self._last_chunk = None  # chunks mostly repeat: one call is kept
            self._last_chunk = (shape, self._call(*shape))
        call = self._last_chunk[1]
        call.load(chunk.ids, chunk.positions, self.used, chunk.rows)
        self._run(call, len(chunk))
        self._last_row = self._own_row
        self._slots.name(len(chunk), chunk.keys)
        self._tell_head(chunk.ids, chunk.positions, call.hidden, chunk.rows)
        self.rope_position = max(self.rope_position, int(chunk.positions.max()) + 1)

    def _call(self, tokens: int, rows: int, filled: Parts = NO_PARTS) -> Call:
        return Call(
            self._graph,
            self._mask,
            tokens=tokens,
            image_rows=rows,
            overwrites=self._overwrites,
            filled=filled,
        )

    def _trial(self, tokens: int, rows: int) -> Call:
        """A run that can be undone; those of as many rows share them."""
        if rows not in self._rows:
            self._rows[rows] = Logits.allocated(self._graph.session, self._contract, rows)
        logits = self._rows[rows]
        return Call(self._graph, self._mask, tokens=tokens, image_rows=0, logits=logits)

    def _undo(self, before: int) -> None:
        """Where states are written over, a run that fails leaves no sequence, and snapshots as they
        were."""
        if self._overwrites:
            self.reset()
        else:
            super()._undo(before)

    def _tell_head(
        self, ids: Array | int, positions: Array, hidden: Array | None, rows: Array | None = None
    ) -> None:
        """Tell the head what was read."""
        if self.head is not None and hidden is not None:
            self.head.read(np.atleast_1d(ids), positions, hidden, rows)


def chunk_ends(tokens: int, chunk: int) -> list[int]:
    """Where each chunk of so many tokens ends: `chunk` tokens each, and what is left over with the
    last of them where it is less than a quarter, for a run reads all weights however short it is.
    """
    ends = list(range(chunk, tokens, chunk))
    if ends and tokens - ends[-1] < chunk // 4:
        ends.pop()
    return [*ends, tokens]
