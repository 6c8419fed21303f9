"""Whether the conversation file is whole, looked at before its use or beside it.

Knows pages and indexes; knows no conversation, and never changes the file. Damage that was seen
leaves a mark, so that the next opening looks at all of the file before anything else.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MARK = "damage-seen"
_PATIENCE_S = 0.01
_OF_A_TYPE = re.compile(r"(non-\w+|NUMERIC|TEXT) value in ")

_log = logging.getLogger(__name__)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is broken."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE


def damage(what: str) -> sqlite3.DatabaseError:
    """An error that `is_damage`, as SQLite itself would raise it."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


@contextlib.contextmanager
def damage_told() -> Iterator[None]:
    """Around SQL: where SQLite names what is no UTF-8, and Python cannot tell its message, an error
    that `is_damage`."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise damage(f"0x{error.object[error.start]:02x} in its schema is no text") from error


def check(connection: sqlite3.Connection, *, thorough: bool = False) -> bool:
    """Look at every page of the file, and `thorough`ly at what the indexes say of them; whether
    each value has the type of its column. Whether it is in range is seen when it is read.

    Raises sqlite3.DatabaseError that `is_damage`. Takes time in proportion to the file.
    """
    pragma = "integrity_check" if thorough else "quick_check"
    connection.execute("PRAGMA ignore_check_constraints = on")
    verdicts = [verdict for (verdict,) in connection.execute(f"PRAGMA {pragma}")]
    connection.execute("PRAGMA ignore_check_constraints = off")
    worse = [verdict for verdict in verdicts if verdict != "ok" and not _OF_A_TYPE.match(verdict)]
    if worse:
        raise damage(worse[0].splitlines()[-1])
    return verdicts == ["ok"]


def mark(path: Path) -> None:
    """Remember that damage was seen in the file `path`."""
    try:
        _mark_of(path).touch(mode=0o600)
    except OSError as error:
        _log.warning("the damage of %s cannot be remembered: %s", path, error)


def is_marked(path: Path) -> bool:
    """Whether damage was seen in the file `path`."""
    return _mark_of(path).exists()


def unmark(path: Path) -> None:
    """Forget it: the file is whole, or another one is in its place."""
    with contextlib.suppress(OSError):
        _mark_of(path).unlink()


def _mark_of(path: Path) -> Path:
    return path.with_suffix(f".{_MARK}")


class BackgroundCheck:
    """A check in a thread of its own, on a connection of its own. `damaged` is what it found."""

    def __init__(self, path: Path, found: Callable[[sqlite3.Error], object]) -> None:
        """Begin. `found` is called in that thread if the file is damaged."""
        self.damaged = False
        self._path = path
        self._found = found
        self._connection: sqlite3.Connection | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether all of the file was looked at."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until all of the file was looked at."""
        self._thread.join()

    def stop(self) -> None:
        """End it, whatever it has not seen yet."""
        self._stopped.set()
        while self._thread.is_alive():
            connection = self._connection
            if connection is not None:
                with contextlib.suppress(sqlite3.ProgrammingError):  # it was closed just now
                    connection.interrupt()
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        place = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            with (
                damage_told(),
                contextlib.closing(
                    sqlite3.connect(place, uri=True, check_same_thread=False)
                ) as self._connection,
            ):
                if not self._stopped.is_set() and not check(self._connection):
                    mark(self._path)
        except sqlite3.Error as error:
            if is_damage(error):
                self.damaged = True
                self._found(error)
            elif not self._stopped.is_set():
                _log.warning("the chat file %s was not checked: %s", self._path, error)
