"""One sequence in a text graph: read a prompt in chunks, go on by one token, go back.

Owns the positions and the order of things. Knows no runtime, no tokenizer and no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from time import perf_counter

import numpy as np

from q35chat.ascend.gears import Costs, Gear
from q35chat.ascend.growing_cache import GrowingStep
from q35chat.ascend.prefill import PrefillCall
from q35chat.ascend.prompts import PromptGraph
from q35chat.engine.calls import Call, Logits
from q35chat.engine.contract import TextContract, read_chunk_contract, read_contract
from q35chat.engine.draft_head import DraftHead
from q35chat.engine.lookahead import LookAhead
from q35chat.engine.session import Array, GraphSession
from q35chat.engine.slots import Slots, check_prompt
from q35chat.engine.states import Snapshot, StateBuffers
from q35chat.engine.tokens import Tokens, image_ends
from q35chat.errors import BundleError

DEFAULT_CHUNK = 64
DEFAULT_LONGEST = 4096

Progress = Callable[[int, int], None]
ShouldStop = Callable[[], bool]


class Decoder:
    """A text graph with the state of one sequence.

    `prefill` is a second graph for prompts, over the same states; without it `decode` does both.
    `head` is the checkpoint's own head for drafts.
    `image_token_id` marks the tokens that take a row of picture embeddings. `predict_ms` is the
    time of the last run inside the runtime. `longest` bounds a sequence whose cache grows;
    `costs` are the times of calls by which prompts are cut, measured as they run; `vocab_size` is
    used where the graph does not tell its own.
    """

    def __init__(
        self,
        decode: GraphSession,
        *,
        image_token_id: int | None = None,
        prefill: GraphSession | None = None,
        head: GraphSession | None = None,
        chunk: int = DEFAULT_CHUNK,
        longest: int = DEFAULT_LONGEST,
        costs: Costs | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self._contract = contract = read_contract(decode, vocab_size)
        reads_gears = prefill is not None and prefill.metadata.get("q35chat.graph") == "prefill"
        self._prefill = decode if prefill is None or reads_gears else prefill
        self._prompt_contract = contract
        if self._prefill is not decode:
            self._prompt_contract = read_chunk_contract(self._prefill, contract)
        self._sessions = tuple(graph for graph in (decode, prefill, head) if graph is not None)
        self._head = None if head is None else DraftHead(head, contract)
        self._image_token_id = image_token_id
        self._chunk = chunk
        self._prompts: PromptGraph | None = None
        if prefill is not None and reads_gears:
            self._prompts = PromptGraph(prefill, decode, contract, costs or Costs())
        elif contract.capacity is None:
            raise BundleError("a decode graph whose cache grows needs a prefill graph")
        self._capacity = contract.capacity or longest
        self._states = StateBuffers(decode, contract.pairs)
        self._overwrites = any(pair.in_place for pair in contract.pairs)
        self._overwrites_all = contract.may_overwrite and self._prompts is None
        self._slots = Slots(self._capacity, contract.attention_mask.dtype)
        self._logits = Logits.allocated(decode, contract, 1)
        self._last_row = self._own_row = self._logits.row(0)
        lit = self._slots.mask.array
        self._mask = decode.allocate(lit.shape, lit.dtype)
        self._step: Call | GrowingStep
        if contract.capacity is None:
            self._step = GrowingStep(decode, contract, self._states, self._logits.values)
        else:
            self._step = self._call(decode, contract, 1, 0)
        self._ahead = LookAhead(decode, contract, self._states, self._mask, self._logits)
        self._last_chunk: tuple[tuple[int, int], Call] | None = None
        self._position = np.zeros((3, 1), np.int64)
        self.rope_position = 0
        self.predict_ms = 0.0

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self._capacity

    @property
    def vocab_size(self) -> int:
        """Length of the logits."""
        return self._contract.vocab_size

    @property
    def image_width(self) -> int | None:
        """Length of a row of picture embeddings, None for a graph that reads no pictures."""
        if self._prompts is not None:
            return self._prompts.image_width
        spec = self._prompt_contract.image_embeds
        return None if spec is None else spec.shape[-1]

    @property
    def used(self) -> int:
        """Slots that hold a token of the sequence."""
        return self._slots.used

    @property
    def keys(self) -> Array:
        """What fills the used slots, int64: a token id, or what `extend` was given for it."""
        return self._slots.keys

    def reset(self) -> None:
        """Forget the sequence."""
        self._ahead.forget()
        self._slots.rewind(0)
        self._states.reset()
        self.rope_position = 0
        if self._head is not None:
            self._head.restore(0, None)

    def extend(
        self,
        ids: Array,
        positions: Array,
        image_embeds: Array | None = None,
        *,
        attention_mask: Array | None = None,
        keys: Array | None = None,
        on_progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> Array | None:
        """Read `ids` as `chunks` does; the logits [V] of the last token, a view as of `logits`.

        `on_progress(done, total)` follows each chunk; `should_stop` is asked before each. None
        when stopped: then `used` tells how far it came.
        """
        total = np.asarray(ids).size if attention_mask is None else int(attention_mask.sum())
        chunks = self.chunks(ids, positions, image_embeds, attention_mask=attention_mask, keys=keys)
        while should_stop is None or not should_stop():
            done = next(chunks)
            if on_progress is not None:
                on_progress(done, total)
            if done == total:
                return self.logits()
        return None

    def chunks(
        self,
        ids: Array,
        positions: Array,
        image_embeds: Array | None = None,
        *,
        attention_mask: Array | None = None,
        keys: Array | None = None,
    ) -> Iterator[int]:
        """Read `ids` [T] or [1, T] after what is already there; yield how many, chunk by chunk.

        `positions` [3, T] are mRoPE positions, `image_embeds` [M, H] the rows of the M picture
        tokens among `ids`, `attention_mask` [1, T] marks right padding, `keys` [T] replaces the
        ids as the identity of the slots. Dropped between two chunks, the state is that of the
        tokens read. Raises before anything runs: a refusal of `capacity`, or ValueError for no
        token at all.
        """
        ids = np.atleast_2d(np.asarray(ids))
        mask = np.ones(ids.shape, np.int32) if attention_mask is None else attention_mask
        count = check_prompt(ids, mask, self.used, self.capacity)
        if count == 0:
            raise ValueError("there is no token to read")
        self._ahead.settle(self.used, self.rope_position)
        tokens = ids[0, :count]
        ends = image_ends(tokens, self._image_token_id, image_embeds)
        keys = tokens if keys is None else keys
        if self._prompts is not None:
            is_image = np.diff(ends) > 0
            new = Tokens(
                tokens, np.asarray(positions)[:, :count], keys[:count], is_image, image_embeds
            )
            yield from self._routed(self._prompts, new)
            return
        for start in range(0, count, self._chunk):
            end = min(start + self._chunk, count)
            rows = None
            if image_embeds is not None and ends[end] > ends[start]:
                rows = image_embeds[ends[start] : ends[end]]
            self._read(tokens[start:end], positions[:, start:end], keys[start:end], rows)
            yield end

    def step(self, token: int) -> Array:
        """Read one more text token; return the logits [V], a view as of `logits`.

        Raises NoSlotError when every slot is used.
        """
        if self._ahead.behind:
            self.try_ahead((token,))
            return self.accept()
        self._ahead.forget()
        self._position[:] = self.rope_position
        self._decode(token, self._position, token)
        return self.logits()

    @property
    def can_try(self) -> bool:
        """Whether `try_ahead` can be used."""
        return self._ahead.possible and self._prompts is None

    @property
    def behind(self) -> int:
        """Tokens that the next run reads once more: others after them were not accepted."""
        return len(self._ahead.behind)

    def try_ahead(self, tokens: Sequence[int]) -> None:
        """Run over text `tokens` in one go; each is read only by an `accept`, in their order.

        Anything else than `accept` drops those that are left. Raises NoSlotError.
        """
        self._slots.forget_beyond(self.used)
        self.predict_ms = self._ahead.run(tokens, self.used, self.rope_position)

    @property
    def head(self) -> DraftHead | None:
        """What drafts; None where there is no such graph."""
        return self._head

    def accept(self) -> Array:
        """Read the next token tried; return the logits [V] after it, a view as of `logits`."""
        token = self._ahead.accept()
        self._slots.advance(1)
        self._slots.name(1, token)
        self._position[:] = self.rope_position
        self._follow(token, self._position, self._ahead.hidden)
        self.rope_position += 1
        self._last_row = self._ahead.row
        return self.logits()

    def logits(self) -> Array:
        """The logits [V] float32 of the last run, a view that the next run overwrites."""
        return self._last_row.values()

    def maxima(self) -> Array | None:
        """The largest of each block of neighbouring `logits`, [V / B] float32, a view as they are;
        None where the graph does not tell them."""
        return self._last_row.maxima()

    def snapshot(self) -> Snapshot:
        """A point that `restore` can go back to."""
        self._ahead.settle(self.used, self.rope_position)
        tokens = None if self._prompts is None else self._prompts.history(self.used)
        caches, last = self._states.caches(), None if self._head is None else self._head.save()
        keys = self.keys.copy()
        return Snapshot(self._states.save(), keys, self.rope_position, caches, tokens, last)

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether the KV rows of `snapshot` are still in their slots."""
        return self._contract.capacity is None or self._slots.hold(snapshot.keys)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`, exactly. Raises ValueError when its slots were written again."""
        if not self.holds(snapshot):
            raise ValueError(f"the slots of a snapshot of {snapshot.count} tokens were overwritten")
        self._ahead.forget()
        self._slots.rewind(0)  # no sequence is there until all of it is
        self._states.load(snapshot.states, snapshot.caches)
        self._slots.rename(snapshot.keys)
        if self._prompts is not None and snapshot.tokens is not None:
            self._prompts.record(0, snapshot.tokens)
        self._slots.rewind(snapshot.count)
        self.rope_position = snapshot.rope_position
        if self._head is not None:
            self._head.restore(snapshot.count, snapshot.last)

    @property
    def reads_in_parts(self) -> bool:
        """Whether reading a prompt in several calls costs about as much as in one."""
        return self._prompts is None

    @property
    def route(self) -> str:
        """How the last prompt was read where there was a choice; empty where there was none."""
        return "" if self._prompts is None else self._prompts.route

    def _routed(self, prompts: PromptGraph, new: Tokens) -> Iterator[int]:
        """Read `new` piece by piece, each through the graph that is cheaper for it."""
        before, rope = self.used, self.rope_position
        todo, route, offset = prompts.plan(new, before)
        for number, piece in enumerate(route.pieces):
            part = todo.part(piece.start, piece.end)
            if number == 0 and route.restart:
                self._slots.rewind(0)  # the states stay until they are written
                self.rope_position = 0
            try:
                if piece.gear is None:
                    self._decode(part.ids[0], part.positions, part.keys[0])
                else:
                    self._prefilled(prompts, piece.gear, part)
            except BaseException:
                if number == 0:
                    self._slots.rewind(before)
                    self.rope_position = rope
                raise
            yield max(0, piece.end + offset - before)

    def _prefilled(self, prompts: PromptGraph, gear: Gear, part: Tokens) -> None:
        call = prompts.call(gear, self._states, self._logits.values)
        call.load(part.ids, part.positions, self.used, part.rows)
        self._run(call, len(part))
        self._last_row = Logits(call.logits).row(call.last_row)
        self._slots.name(len(part), part.keys)
        prompts.note(gear, self.predict_ms)
        prompts.record(self.used - len(part), part)
        self.rope_position = max(self.rope_position, int(part.positions.max()) + 1)

    def _decode(self, token: Array | int, positions: Array, key: Array | int) -> None:
        """One text token at `positions` [3, 1] through the decode graph."""
        if self._prompts is not None:
            self._prompts.before_step()
        following = max(self.rope_position, int(positions.max()) + 1)
        self._step.load(token, positions, self.used, None)
        self._run(self._step, 1)
        self._last_row = self._own_row
        self._slots.name(1, key)
        self._follow(token, positions, self._step.hidden)
        if self._prompts is not None:
            self._prompts.note(None, self.predict_ms)
            self._prompts.record_text(self.used - 1, token, positions, key)
        self.rope_position = following

    def close(self) -> None:
        """Free the graphs; further calls are errors."""
        with ExitStack() as closing:  # each, whatever happens with another
            for session in self._sessions:
                closing.callback(session.close)

    def _read(self, tokens: Array, positions: Array, keys: Array, rows: Array | None) -> None:
        call = self._chunk_call(len(tokens), 0 if rows is None else len(rows))
        call.load(tokens, positions, self.used, rows)
        self._run(call, len(tokens))
        self._last_row = self._own_row
        self._slots.name(len(tokens), keys)
        self._follow(tokens, positions, call.hidden, rows)
        self.rope_position = max(self.rope_position, int(positions.max()) + 1)

    def _chunk_call(self, tokens: int, rows: int) -> Call:
        """The call of this shape, kept until another shape is needed: chunks mostly repeat."""
        shape = (tokens, rows)
        if self._last_chunk is None or self._last_chunk[0] != shape:
            self._last_chunk = None
            call = self._call(self._prefill, self._prompt_contract, tokens, rows)
            self._last_chunk = (shape, call)
        return self._last_chunk[1]

    def _call(self, session: GraphSession, contract: TextContract, tokens: int, rows: int) -> Call:
        return Call(
            session,
            contract,
            self._states,
            self._mask,
            self._logits,
            tokens=tokens,
            image_rows=rows,
            overwrites=self._overwrites_all,
        )

    def _run(self, call: Call | GrowingStep | PrefillCall, tokens: int) -> None:
        """Light the slots and run. One that fails leaves the sequence as it was, but perhaps not
        the rows beyond it where they are written in place; where states are written over, it
        leaves no sequence, and snapshots as they were."""
        before = self.used
        self._slots.advance(tokens)
        if self._overwrites:
            self._slots.forget_beyond(before)
        try:
            call.upload(self._slots.mask)
            started = perf_counter()
            call.run()
        except BaseException:
            if self._overwrites_all:
                self.reset()
            else:
                self._slots.rewind(before)
            raise
        self.predict_ms = (perf_counter() - started) * 1e3

    def _follow(
        self, ids: Array | int, positions: Array, hidden: Array | None, rows: Array | None = None
    ) -> None:
        """Tell the head what was read."""
        if self._head is not None and hidden is not None:
            self._head.read(np.atleast_1d(ids), positions, hidden, rows)
