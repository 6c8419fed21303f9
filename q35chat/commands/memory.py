"""How much memory the shell lets a process take, and what the libraries of a model take at least.

Where there is less, a library may end the process with words of its own, so that is asked before
one is loaded. Imports none of them.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from q35chat.errors import RuntimeFailure
from q35chat.text import readable_size

_LITTLE: Final = 2 << 30
_LIBRARIES: Final = 432 << 20
"""Addresses that numpy, ONNX Runtime and the demo take, with some to spare."""
_OF_A_CORE: Final = 40 << 20
"""What numpy's threads take more of them on each core; there are at most `_THREADS`."""
_THREADS: Final = 64


def limited_memory() -> str:
    """That the shell gives this process little memory, where it does: libraries say many things
    when they get none."""
    most = _limit()
    if not 0 <= most < _LITTLE:
        return ""
    return (
        f"; a process may take {readable_size(most)} of memory here (ulimit -v), which may be why: "
        "give it more"
    )


def require_memory() -> None:
    """Raises RuntimeFailure where the shell gives less than the libraries of a model take."""
    needed = _LIBRARIES + _OF_A_CORE * min(os.cpu_count() or 1, _THREADS)
    if 0 <= _limit() < needed:
        raise RuntimeFailure(
            f"the libraries that run a model take about {readable_size(needed)} of memory"
        )


def _limit() -> int:
    """Bytes of addresses, negative for no limit."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]
