"""The decoder of two graphs, a prefill in gears and a decode step, over the same states; or of a
prefill alone, whose gear of one token is the step. Where the graph of a step has gears of several
tokens, guessed ones are tried in it.

Owns the order of things, the measured times, and which graph reads which part of a prompt: a
prefill without states has to read the whole sequence again, or the new tokens go through decode,
whichever is cheaper. Knows no runtime, no tokenizer and no sampling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from q35chat.ascend.gears import (
    Costs,
    Gear,
    GraphName,
    Loads,
    PrefillAbility,
    PromptLayout,
    Route,
    plan,
)
from q35chat.ascend.growing_cache import GrowingCaches, GrowingStep
from q35chat.ascend.prefill import (
    TOLD,
    PrefillCall,
    check_stacked,
    decoding_contract,
    empty_states,
    read_gears,
    read_prefill,
)
from q35chat.engine.calls import Call, Logits, LogitsRow
from q35chat.engine.contract import read_contract
from q35chat.engine.decoder import SpeculativeDecoder
from q35chat.engine.look_ahead import LookAhead, Trial
from q35chat.engine.session import Array, Buffer, GraphSession
from q35chat.engine.states import Snapshot
from q35chat.engine.tokens import Tokens

DEFAULT_LONGEST = 4096


class LoadableSession(GraphSession, Protocol):
    """A session whose graph may have to be loaded before it runs: not all fit a device at once."""

    @property
    def is_loaded(self) -> bool:
        """Whether it can run at once."""

    def make_ready(self) -> None:
        """Load it where it is not; the next run then only computes."""

    @property
    def reload_ms(self) -> float:
        """What bringing it back takes, in milliseconds; 0 where it never has to leave."""

    @property
    def refuses_outputs(self) -> bool:
        """Whether results go through the host, since it does not write them where it is told."""


@dataclass(frozen=True)
class GearedSnapshot(Snapshot):
    """A `Snapshot` with the `caches` that grow, which are never written again, and the `tokens`
    that a prefill without states may have to read again."""

    caches: Mapping[str, Buffer] = field(default_factory=dict)
    tokens: Tokens | None = None

    @property
    def nbytes(self) -> int:
        """Memory held, on the host and in growing caches, in bytes."""
        grown = (math.prod(b.shape) * b.dtype.itemsize for b in self.caches.values())
        return super().nbytes + sum(grown)


class GearedDecoder(SpeculativeDecoder):
    """A `Decoder` over a `prefill` and a `decode` graph; None where the prefill decodes, which
    needs a `vocab_size`.

    `image_token_id` marks the tokens that take a row of picture embeddings. `longest` bounds a
    sequence whose cache grows; `costs` are the times of calls by which prompts are cut, measured
    as they run; `vocab_size` is used where the graph does not tell its own.
    """

    reads_in_parts = False
    head = None

    def __init__(
        self,
        decode: LoadableSession | None,
        prefill: LoadableSession,
        *,
        image_token_id: int | None = None,
        longest: int = DEFAULT_LONGEST,
        costs: Costs | None = None,
        vocab_size: int | None = None,
    ) -> None:
        if decode is None:
            contract = decoding_contract(prefill, vocab_size or 0)
        else:
            check_stacked({spec.name: spec for spec in decode.outputs})
            contract = read_contract(decode, vocab_size)
        self._prefill_contract = read_prefill(prefill, contract)
        fixed, grown = (
            tuple(p for p in contract.pairs if p.grows is kind) for kind in (False, True)
        )
        capacity = contract.capacity or longest
        sessions = (prefill,) if decode is None else (decode, prefill)
        super().__init__(sessions, contract, fixed, capacity, image_token_id)
        self._decode, self._prefill = decode, prefill
        self._costs = costs or Costs()
        self.image_width = self._prefill_contract.image_width
        self._caches = GrowingCaches(sessions[0], grown)
        self._step: Call | GrowingStep | None = None
        self._mask: Buffer | None = None
        if decode is not None and contract.capacity is None:
            self._step = GrowingStep(self._graph, self._caches)
        elif decode is not None:
            mask = self._slots.array
            self._mask = decode.allocate(mask.shape, mask.dtype)
            self._step = Call(self._graph, self._mask, tokens=1, image_rows=0)
        self._calls: dict[Gear, PrefillCall] = {}
        self._prefill_logits, rows = self._graph.logits, self._prefill_contract.rows
        if rows > 1:
            self._prefill_logits = Logits.allocated(sessions[0], contract, rows)
        self._several: dict[int, Call] = {}
        self.most_tokens = self._most_tokens()
        self._ahead = LookAhead(contract, self._states, self._trial)
        self._empty = empty_states(prefill, self._prefill_contract)
        empty: Array = np.zeros(0, np.int64)
        self._nothing = Tokens(
            empty, np.zeros((3, 0), np.int64), empty, np.zeros(0, np.bool_), None
        )
        self._read_before = self._nothing
        self._route = ""

    @property
    def gears(self) -> tuple[int, ...]:
        """Lengths of a prefill, shortest first; none where any is taken."""
        return tuple(gear.tokens for gear in self._prefill_contract.gears)

    @property
    def speculative(self) -> GearedDecoder | None:
        """This decoder where a step can have several tokens."""
        return self if self.most_tokens > 1 else None

    @property
    def behind(self) -> int:
        """Tokens that the next run reads once more: others after them were not accepted."""
        return len(self._ahead.behind)

    @property
    def detours(self) -> tuple[GraphName, ...]:
        """The graphs whose results go through the host."""
        graphs: dict[GraphName, LoadableSession | None]
        graphs = {"prefill": self._prefill, "decode": self._decode}
        return tuple(name for name, graph in graphs.items() if graph and graph.refuses_outputs)

    @property
    def route(self) -> str:
        """How the last prompt was read, and which graphs send their results through the host."""
        through = f"; results of {' and '.join(self.detours)} through the host"
        return self._route + (through if self.detours else "")

    def read_gear(self, length: int, text: Tokens) -> None:
        """Read `text` in the gear of that length, after what is there, whatever it costs."""
        gear = next(gear for gear in self._prefill_contract.gears if gear.tokens == length)
        self._prefill_in(gear, text)

    def reset(self) -> None:
        """Forget the sequence."""
        self._ahead.forget()
        super().reset()
        self._caches.load({})

    def chunks(
        self,
        ids: Array,
        positions: Array,
        image_embeds: Array | None = None,
        *,
        keys: Array | None = None,
    ) -> Iterator[int]:
        """Read `ids` [T] at `positions` [3, T]; yield how many, call by call.

        All as `Decoder.chunks` has it; each part goes through the graph that is cheaper for it.
        Raises PromptGearError as well.
        """
        new = self._new(ids, positions, image_embeds, keys)
        self._catch_up()
        before, rope = self.used, self.rope_position
        todo, route, offset = self._plan(new)
        for number, stretch in enumerate(route.stretches):
            part = todo.part(stretch.start, stretch.end)
            if number == 0 and route.restart:
                self._slots.rewind(0)  # the states stay until they are written
                self.rope_position = 0
            try:
                if stretch.gear is None:
                    self._decode_one(part)
                else:
                    self._prefill_in(stretch.gear, part)
            except BaseException:
                if number == 0:
                    self._slots.rewind(before)
                    self.rope_position = rope
                raise
            yield max(0, stretch.end + offset - before)

    def step(self, token: int) -> Array:
        """Read one more text token; return the logits [V], a view as of `logits`.

        Raises NoSlotError when every slot is used.
        """
        if self._ahead.behind:
            self.try_ahead((token,))
            return self.accept()
        self._ahead.forget()
        self._decode_one(self._next(token))
        return self.logits()

    def try_ahead(self, tokens: Sequence[int]) -> None:
        """Run over text `tokens` in one go; each is read only by an `accept`, in their order.

        Anything else than `accept` drops those that are left. Raises NoSlotError.
        """
        self._step_graph.make_ready()
        self._slots.forget_beyond(self.used)
        self.predict_ms = self._ahead.run(tokens, self.used, self.rope_position)

    def accept(self) -> Array:
        """Read the next token tried; return the logits [V] after it, a view as of `logits`."""
        one = self._next(self._ahead.accept())
        self._slots.advance(1)
        self._record(one)
        self._last_row = self._ahead.row
        return self.logits()

    def snapshot(self) -> Snapshot:
        """A point that `restore` can go back to."""
        self._catch_up()
        tokens = None
        if not self._prefill_contract.stateful:
            tokens = self._read_before.part(0, self.used)
        return GearedSnapshot(
            self._states.save(),
            self.keys.copy(),
            self.rope_position,
            caches=dict(self._caches.now),
            tokens=tokens,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`, exactly. Raises ValueError when its slots were written again."""
        assert isinstance(snapshot, GearedSnapshot)
        snapshot.check(held=self.holds(snapshot))
        self._ahead.forget()
        super().restore(snapshot)
        self._caches.load(snapshot.caches)
        self._slots.rename(snapshot.keys)
        self._read_before = snapshot.tokens or self._nothing

    def dump(self, snapshot: Snapshot) -> Iterator[tuple[str, Array]]:
        """`snapshot` with its KV rows, and with the tokens that may be read again."""
        assert isinstance(snapshot, GearedSnapshot)
        yield from super().dump(snapshot)
        for name, buffer in snapshot.caches.items():
            yield name, buffer.host()
        if snapshot.tokens is not None:
            yield from snapshot.tokens.dump()

    def _fill(self, arrays: Mapping[str, Array], keys: Array) -> None:
        """The states, the caches that grow, and the tokens."""
        super()._fill(arrays, keys)
        self._caches.fill(arrays, len(keys))
        if not self._prefill_contract.stateful:
            self._read_before = Tokens.dumped(arrays, keys, self.image_width)

    def _plan(self, new: Tokens) -> tuple[Tokens, Route, int]:
        """How to read `new`: the tokens to take parts of, the route through them, and the slot of
        the first of them. Raises PromptGearError."""
        contract, used = self._prefill_contract, self.used
        todo, start, offset = new, 0, used
        if not contract.stateful:
            todo, start, offset = self._read_before.part(0, used).then(new), used, 0
        ends = todo.image_ends
        gears = contract.gears or (Gear(len(todo), max(ends[-1], 1)),)
        fixed = self._contract.capacity is not None
        ability = PrefillAbility(
            gears,
            contract.stateful,
            decode_first=fixed or offset > 0,
            exact=contract.exact,
            steps=self._decode is not None,
        )
        loads = self._loads()
        route = plan(PromptLayout(ends, start), ability, self._costs, loads)
        self._route = route.text(len(new), loads)
        return todo, route, offset

    def _loads(self) -> Loads:
        """What it takes to have each graph on the device; nothing where there is only one."""
        if self._decode is None:
            return Loads("prefill")
        ready: GraphName | None = "prefill" if self._prefill.is_loaded else None
        ready = "decode" if self._decode.is_loaded else ready
        return Loads(ready, self._prefill.reload_ms, self._decode.reload_ms)

    @property
    def _step_graph(self) -> LoadableSession:
        """The graph that runs a step."""
        return self._prefill if self._decode is None else self._decode

    def _most_tokens(self) -> int:
        """How many tokens a step can have: all numbers up to it are gears of its graph, and there
        are logits of so many."""
        graph = self._step_graph
        if self._contract.capacity is None or "single-steps" in graph.metadata.get(TOLD, ""):
            return 1
        gears = read_gears(graph, {spec.name: spec for spec in graph.inputs})
        lengths, most = {gear.tokens for gear in gears}, 1
        while most + 1 in lengths:
            most += 1
        return most if self._decode is not None else min(most, self._prefill_contract.rows)

    def _trial(self, tokens: int, rows: int) -> Trial:  # noqa: ARG002  (all have logits)
        """A step of several tokens, made once."""
        if self._decode is None or self._mask is None:
            gears = self._prefill_contract.gears
            return self._prefill_call(next(gear for gear in gears if gear.tokens == tokens))
        if tokens not in self._several:
            logits = Logits.allocated(self._decode, self._contract, tokens)
            self._several[tokens] = Call(
                self._graph, self._mask, tokens=tokens, image_rows=0, logits=logits
            )
        return self._several[tokens]

    def _catch_up(self) -> None:
        """Bring the states up to the last token read."""
        if self._ahead.behind:
            self._step_graph.make_ready()
        self._ahead.catch_up(self.used, self.rope_position)

    def _next(self, token: int) -> Tokens:
        """`token` as the text token that comes next."""
        ids = np.array([token], np.int64)
        position = np.full((3, 1), self.rope_position)
        return Tokens(ids, position, ids, np.zeros(1, np.bool_), None)

    def _prefill_call(self, gear: Gear) -> PrefillCall:
        """The run in that gear, made once."""
        contract = self._prefill_contract
        if gear not in self._calls:
            if contract.every_token:
                self._calls.clear()  # logits of every token are large
            self._calls[gear] = PrefillCall(
                self._prefill,
                contract,
                self._states,
                self._caches,
                self._prefill_logits,
                gear,
                self._empty,
            )
        return self._calls[gear]

    def _prefill_in(self, gear: Gear, part: Tokens) -> None:
        """Read `part` in one prefill."""
        call = self._prefill_call(gear)
        self._prefill.make_ready()
        call.load(part.ids, part.positions, self.used, part.rows)
        self._run(call, len(part))
        self._last_row = LogitsRow(call.logits, call.last_row)
        self._costs.note(gear, self.predict_ms)
        self._record(part)

    def _decode_one(self, one: Tokens) -> None:
        """Read one text token through the decode graph, or the prefill that decodes."""
        if self._decode is None or self._step is None:
            self.read_gear(1, one)
            return
        self._decode.make_ready()  # its clock must not run while its graph is loaded
        self._step.load(one.ids, one.positions, self.used, None)
        self._run(self._step, 1)
        self._last_row = self._own_row
        self._costs.note(None, self.predict_ms)
        self._record(one)

    def _record(self, part: Tokens) -> None:
        """`part` was read into the last slots; what lay there and behind is forgotten."""
        self._slots.name(len(part), part.keys)
        if not self._prefill_contract.stateful:
            before = self._read_before.part(0, self.used - len(part))
            self._read_before = before.then(part)
        self.rope_position = max(self.rope_position, int(part.positions.max()) + 1)
