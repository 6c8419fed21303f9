"""A point in a sequence to go back to, as a value. Knows no graph and no session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from q35chat.engine.session import Array, Buffer
from q35chat.engine.tokens import Tokens


@dataclass(frozen=True, slots=True, eq=False)
class LastToken:
    """The last token of a sequence as a draft head needs it: `hidden` [H] and `position` [3]."""

    hidden: Array
    position: Array


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point to go back to: states on the host, and what was read up to it.

    The KV rows stay on the device, so it is good only while those slots are not written again;
    `caches` that grow are never written again. `tokens` are there where a prefill without states
    may have to read them again, `last` where a head makes drafts.
    """

    states: Mapping[str, Array]
    keys: Array
    rope_position: int
    caches: Mapping[str, Buffer] = field(default_factory=dict)
    tokens: Tokens | None = None
    last: LastToken | None = None

    @property
    def count(self) -> int:
        """Tokens read up to this point."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held, on the host and in growing caches."""
        grown = sum(math.prod(b.shape) * b.dtype.itemsize for b in self.caches.values())
        return self.keys.nbytes + sum(array.nbytes for array in self.states.values()) + grown
