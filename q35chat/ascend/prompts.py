"""Which graph reads which part of a prompt, where prefill and decode are graphs of their own.

Owns the plan, the measured times and the calls by gear. A prefill without states has to read the
whole sequence again, or the new tokens go through decode: the cheaper way by measured times.
"""

from __future__ import annotations

import numpy as np

from q35chat.ascend.gears import Costs, Gear, Graph, Loads, Prefill, Prompt, Route, plan
from q35chat.ascend.prefill import PrefillCall, read_prefill
from q35chat.engine.contract import TextContract
from q35chat.engine.session import Array, Buffer, GraphSession, Swappable
from q35chat.engine.states import StateBuffers
from q35chat.engine.tokens import History, Tokens


class PromptGraph:
    """The prefill graph of a decode graph. `route` tells how the last prompt was read."""

    def __init__(
        self,
        prefill: GraphSession,
        decode: GraphSession,
        contract: TextContract,
        costs: Costs,
    ) -> None:
        self._prefill = prefill
        self._decode = decode
        self._decode_contract = contract
        self._contract = read_prefill(prefill, contract)
        self._costs = costs
        self._calls: dict[Gear, PrefillCall] = {}
        self._history = History()
        self.route = ""

    @property
    def image_width(self) -> int | None:
        """Length of a row of picture embeddings, None for a graph that reads no pictures."""
        return self._contract.image_width

    def plan(self, new: Tokens, used: int) -> tuple[Tokens, Route, int]:
        """How to read `new` behind `used` tokens: the tokens to take pieces of, the route through
        them, and the slot of the first of them. Raises PromptGearError."""
        stateful = self._contract.stateful
        todo = new if stateful else self._history.upto(used).then(new)
        start, offset = (0, used) if stateful else (used, 0)
        ends = todo.image_ends
        gears = self._contract.gears or (self._contract.gear(len(todo), ends[-1]),)
        fixed = self._decode_contract.capacity is not None
        ability = Prefill(
            gears, stateful, decode_first=fixed or offset > 0, exact=self._contract.every_token
        )
        loads = self._loads()
        route = plan(Prompt(ends, start), ability, self._costs, loads)
        self.route = _described(route, len(new), loads)
        return todo, route, offset

    def call(self, gear: Gear, states: StateBuffers, logits: Buffer) -> PrefillCall:
        """The call in `gear`, made once; only one at a time where logits are of every token,
        because they are large."""
        if gear not in self._calls:
            if self._contract.every_token:
                self._calls.clear()
            self._calls[gear] = PrefillCall(self._prefill, self._contract, states, logits, gear)
        _make_ready(self._prefill)
        return self._calls[gear]

    def note(self, gear: Gear | None, milliseconds: float) -> None:
        """Remember the time of a call."""
        self._costs.note(gear, milliseconds)

    def before_step(self) -> None:
        """A decode step comes next: its clock must not run while its graph is loaded."""
        _make_ready(self._decode)

    def history(self, count: int) -> Tokens | None:
        """The first `count` tokens that were read, where they may have to be read again."""
        return None if self._contract.stateful else self._history.upto(count)

    def record(self, slot: int, tokens: Tokens) -> None:
        """`tokens` were read into the slots from `slot` on."""
        if not self._contract.stateful:
            self._history.record(slot, tokens)

    def record_text(
        self, slot: int, token: Array | int, positions: Array, key: Array | int
    ) -> None:
        """One text token was read into `slot`."""
        if not self._contract.stateful:
            ids, keys = (np.array([x], np.int64).reshape(1) for x in (token, key))
            one = Tokens(ids, positions.copy(), keys, np.zeros(1, np.bool_), None)
            self._history.record(slot, one)

    def _loads(self) -> Loads:
        prefill, decode = self._prefill, self._decode
        ready: Graph | None = None
        if _is_loaded(decode):
            ready = "decode"
        elif _is_loaded(prefill):
            ready = "prefill"
        return Loads(ready, _reload_ms(prefill), _reload_ms(decode))


def _make_ready(session: GraphSession) -> None:
    if isinstance(session, Swappable):
        session.make_ready()


def _is_loaded(session: GraphSession) -> bool:
    return session.is_loaded if isinstance(session, Swappable) else True


def _reload_ms(session: GraphSession) -> float:
    return session.reload_ms if isinstance(session, Swappable) else 0.0


def _swapped_in(route: Route, loads: Loads) -> list[Graph]:
    """The graphs to load on the way, in order: none where both stay on the device."""
    if not (loads.prefill_ms or loads.decode_ms):
        return []
    wanted: list[Graph] = ["decode" if piece.gear is None else "prefill" for piece in route.pieces]
    loaded: list[Graph] = []
    current = loads.ready
    for graph in (*wanted, "decode"):
        if graph != current:
            loaded.append(graph)
            current = graph
    return loaded


def _described(route: Route, count: int, loads: Loads) -> str:
    steps = sum(piece.gear is None for piece in route.pieces)
    gears = [str(piece.gear.tokens) for piece in route.pieces if piece.gear is not None]
    ways = []
    if gears:
        again = " from the first token on" if route.restart else ""
        ways.append(f"prefill {' + '.join(gears)}{again}")
    if steps:
        ways.append(f"decode {steps}")
    if loaded := _swapped_in(route, loads):
        ways[-1] += f", loading {' and '.join(loaded)}"
    return f"{count} tokens: {', then '.join(ways)}, about {route.cost_ms:.0f} ms"
