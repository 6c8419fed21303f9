"""One SQLite connection shared by the threads of a process: short transactions, plain errors.

Committed rows survive the death of the process; the last ones may be lost with the power.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from q35chat.chat.history.records import StoreBusyError, StoreWriteError
from q35chat.errors import StoreError
from q35chat.store.checking import BackgroundCheck, damage_told, is_damage, mark

_log = logging.getLogger(__name__)

BUSY_SECONDS = 10.0
PRAGMAS = ("journal_mode = wal", "synchronous = normal", "foreign_keys = on", "secure_delete = on")


def connect(path: Path | str, pragmas: Sequence[str] = PRAGMAS) -> sqlite3.Connection:
    """A connection in autocommit mode that waits for other writers. Raises sqlite3.Error.

    `path` may be a URI. Text that is no UTF-8 is read with surrogates in the place of its bytes.
    """
    connection = sqlite3.connect(
        path,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=isinstance(path, str),
    )
    connection.text_factory = _text
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class Database:
    """Transactions on one file, one thread at a time.

    A file that was not `checked` is read at once and looked at meanwhile; nothing is written to it
    before that has ended. `damage` is what the user should know of it, or empty; `refused` says why
    nothing can be written to it.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        checked: bool = True,
        refused: StoreWriteError | None = None,
    ) -> None:
        self.path = path
        self.damage = ""
        self.refused = refused
        self._connection = connection
        self._lock = threading.RLock()
        self._check = None if checked else BackgroundCheck(path, self._damaged)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of the file. Raises StoreError."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[sqlite3.Connection]:
        """All changes or none, waiting up to `BUSY_SECONDS` for others.

        Raises StoreError, also where the file is damaged; StoreBusyError where it is not to `wait`
        and others write, or the file is still being checked.
        """
        self.check_writable()
        if self._check is not None:
            if not (wait or self._check.ended):
                raise StoreBusyError(f"The chat file {self.path} is being checked. Try again.")
            self._check.wait()
            if self._check.damaged:
                raise StoreWriteError(self.damage)
        with self._transaction("BEGIN IMMEDIATE", wait=wait) as connection:
            yield connection

    def check_writable(self) -> None:
        """Raises StoreWriteError where it is known that nothing can be written."""
        if self.refused is not None:
            raise StoreWriteError(str(self.refused))

    def forget(self) -> None:
        """Write the file anew, so that no page keeps remains of what was deleted or written over:
        those of rows that moved are never wiped. Raises StoreError."""
        with self._explaining(wait=True):
            try:
                self._connection.execute("VACUUM")
            except sqlite3.OperationalError as error:  # no room, or others write all the time
                _log.warning("%s is not written anew: %s", self.path, error)
        self.empty_log()

    def empty_log(self) -> None:
        """Leave nothing of what was deleted in the log beside the file. Raises StoreError.

        Where another process reads in it, it goes when the last one closes the file.
        """
        with self._explaining(wait=True):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; further calls are errors."""
        if self._check is not None:
            self._check.stop()
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self, begin: str, *, wait: bool = True) -> Iterator[sqlite3.Connection]:
        with self._explaining(wait=wait):
            self._begin(begin, wait=wait)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _explaining(self, *, wait: bool) -> Iterator[None]:
        """Hold the connection; what SQLite refuses is a StoreError."""
        if not self._lock.acquire(blocking=wait):
            raise StoreBusyError(self._busy)
        try:
            with damage_told():
                yield
        except sqlite3.Error as error:
            raise self._explained(error) from error
        except UnicodeEncodeError as error:
            raise StoreError(
                f"{error.object[error.start]!a} is no character of UTF-8, so it cannot be in the "
                "chat file. Write the text in UTF-8."
            ) from error
        finally:
            self._lock.release()

    def _begin(self, begin: str, *, wait: bool) -> None:
        if wait:
            self._connection.execute(begin)
            return
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute(begin)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StoreBusyError(self._busy) from error
            raise
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")

    @property
    def _busy(self) -> str:
        return f"The chat file {self.path} is being written by another q35chat. Try again."

    def _explained(self, error: sqlite3.Error) -> StoreError:
        if is_damage(error):
            return StoreWriteError(self._damaged(error))
        said = f"The chat file {self.path} cannot be used ({error})"
        if isinstance(error, sqlite3.IntegrityError):
            return StoreError(
                f"{said}: what is to be written does not fit what stands there. Begin a new chat."
            )
        return StoreWriteError(f"{said}. Check free space and permissions, then try again.")

    def _damaged(self, error: sqlite3.Error) -> str:
        mark(self.path)
        self.damage = (
            f"The chat file {self.path} is damaged ({error}). "
            "Start q35chat again: it sets the file aside and begins a new one."
        )
        return self.damage
