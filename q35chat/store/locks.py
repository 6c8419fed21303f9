"""Locks between processes that share a store; a failure is a StoreError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from q35chat.errors import StoreError
from q35chat.files import locked


@contextmanager
def exclusive(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`. Waits for another holder, or raises StoreError(`busy`)."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=busy is None))
        except BlockingIOError as error:
            raise StoreError(busy or "") from error
        except OSError as error:
            raise StoreError(f"The lock file {path} cannot be opened: {error.strerror}.") from error
        yield
