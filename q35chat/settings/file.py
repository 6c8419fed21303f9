"""The file itself: where it is, what it holds, and single changes of it."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from platformdirs import user_config_path

from q35chat.errors import UsageError
from q35chat.files import alone_with, replace_file
from q35chat.settings.entries import Settings
from q35chat.settings.reader import SettingsReader
from q35chat.text import readable_size, safe_line

if TYPE_CHECKING:
    from tomlkit.items import Item

FILE_NAME: Final = "settings.toml"
PRIVATE: Final = 0o600
_MOST_BYTES: Final = 1 << 20


def settings_path() -> Path:
    """Where the settings file is, whether or not it exists."""
    return user_config_path("q35chat") / FILE_NAME


def load_settings(path: Path | None = None) -> Settings:
    """The settings in the file `path`; the defaults where there is none.

    Raises UsageError naming file, line and key for anything that is not understood.
    """
    path = path or settings_path()
    text = text_of(path)
    return Settings() if text is None else settings_of(path, text)


def change_settings(changes: Mapping[str, Any], path: Path | None = None) -> Settings:
    """Set keys in the file and leave the rest as the user wrote it, its comments too; what stands
    there now. None takes a key out; a mapping changes keys of a table. The file is made where there
    is none.

    Raises UsageError for a file that is wrong already, for changes that would make it wrong, and
    where it cannot be written.
    """
    path = path or settings_path()
    with changing(path):
        text = text_of(path) or ""
        settings_of(path, text)
        changed = changed_text(path, text, changes)
        settings = settings_of(path, changed)
        if changed != text:
            replace_file(path, changed, mode=PRIVATE)
    return settings


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Nobody else changes the file meanwhile. Raises UsageError, also for an OSError inside."""
    try:
        with alone_with(path):
            yield
    except OSError as error:
        raise UsageError(f"cannot write {safe_line(str(path))}: {error}") from error


def text_of(path: Path) -> str | None:
    """What stands in the file, its line ends as they are; None where there is none. Raises
    UsageError."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for without end
            raise UsageError(f"{safe_line(str(path))} is no file; make it one or delete it")
        if status.st_size > _MOST_BYTES:
            raise UsageError(
                f"{safe_line(str(path))} has {readable_size(status.st_size)}, settings at most "
                f"{readable_size(_MOST_BYTES)}; fix or delete it"
            )
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read {safe_line(str(path))}: {error}; fix or delete it"
        ) from error


def document_of(path: Path, text: str) -> dict[str, Any]:
    """The keys in a text. Raises UsageError where it is not TOML."""
    import tomllib  # noqa: PLC0415 - few have the file, and the first paint would wait for it

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        reason = safe_line(str(error))
        raise UsageError(f"{safe_line(str(path))} is not TOML: {reason}; fix it") from error


def settings_of(path: Path, text: str) -> Settings:
    """The settings in a text. Raises UsageError."""
    return Settings(**SettingsReader(path, text).settings(document_of(path, text)))


def changed_text(path: Path, text: str, changes: Mapping[str, Any]) -> str:
    """A text with `changes` in it. Raises UsageError where the library cannot read it."""
    import tomlkit  # noqa: PLC0415 - only who changes something waits for it
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(text)
        for key, value in changes.items():
            if isinstance(value, Mapping):
                if key not in document and any(it is not None for it in value.values()):
                    document[key] = tomlkit.table()
                _change(document.get(key, {}), value)
            else:
                _change(document, {key: value})
        return tomlkit.dumps(document)
    except (TOMLKitError, RecursionError) as error:
        reason = safe_line(str(error))
        raise UsageError(f"cannot change {safe_line(str(path))}: {reason}") from error


def _change(table: Any, changes: Mapping[str, Any]) -> None:  # noqa: ANN401 - also the document
    for key, value in changes.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = _item(value)


def _item(value: object) -> Item:
    """A value as people write it: a text of several lines stands on several, where these end as
    TOML reads them back."""
    import tomlkit  # noqa: PLC0415

    if isinstance(value, str):
        return tomlkit.string(value, multiline="\n" in value and "\r" not in value)
    return tomlkit.item(value)
