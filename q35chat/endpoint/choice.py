"""Which server is asked: its address, the model's name there, the key, and how long to wait.

Checks what the user gave; opens no connection. A key is a `Secret`: what is printed, logged or
raised of it never shows it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from q35chat.errors import UsageError
from q35chat.text import safe_line

DEFAULT_WAIT_S: Final = 600
"""Seconds until the first token: a long prompt on a busy server takes minutes."""

_KEY: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_LOCAL: Final = re.compile(r"localhost|127(\.\d{1,3}){3}|::1", re.IGNORECASE)
_SERVICE: Final = "q35chat"


class Secret:
    """A key that only `reveal` shows."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret(…)"

    def reveal(self) -> str:
        """The key itself."""
        return self._value

    def hidden_in(self, said: bytes) -> bytes:
        """What a server `said` without the key, which some repeat."""
        return said.replace(self._value.encode(), "…".encode())


@dataclass(frozen=True, slots=True)
class Address:
    """A server: `base` is what OpenAI's clients call base URL and ends without a stroke, `root` is
    above its version, where servers answer what the protocol does not know."""

    base: str
    root: str
    host: str
    is_local: bool
    """Whether it is this machine, which no proxy stands before."""


@dataclass(frozen=True, slots=True)
class EndpointChoice:
    """The server to ask. An empty `model` is the only one that it has, `capacity` 0 is what it
    says. `key_name` is where the key comes from, for who has to mend it; `ca_file` holds the
    authorities that sign its certificate, where the system does not know them."""

    address: Address
    model: str = ""
    key: Secret | None = None
    key_name: str = ""
    capacity: int = 0
    wait_s: int = DEFAULT_WAIT_S
    ca_file: Path | None = None


def is_address(text: str) -> bool:
    """Whether `text` is meant as a URL and not as a name of the settings."""
    return "://" in text


def read_address(text: str) -> Address:
    """The server at the URL `text`; where it names no path, the version is 1, as everywhere.

    Raises UsageError.
    """
    shown = safe_line(text)
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{shown} is no address: {error}; give http://HOST:PORT/v1") from error
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"the address of {safe_line(parts.hostname or '')} holds a name or a password, which "
            "would be shown and logged; give the key by api_key_env in the settings"
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or not _is_plain(parts):
        raise UsageError(f"{shown} is no address of a server; give http://HOST:PORT/v1")
    named = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    host = named if port is None else f"{named}:{port}"
    path = parts.path.rstrip("/") or "/v1"
    top = path.removesuffix("/v1")
    origin = f"{parts.scheme}://{host}"
    local = _LOCAL.fullmatch(parts.hostname) is not None
    return Address(origin + path, origin + top, host, local)


def _is_plain(parts: SplitResult) -> bool:
    text = parts.geturl()
    return not (parts.query or parts.fragment) and text.isascii() and text.isprintable()


def key_from_environment(name: str, *, needed: bool = True) -> Secret | None:
    """The key in the environment variable `name`. Raises UsageError where it is `needed` and not
    there, or no key."""
    value = os.environ.get(name, "")
    if not value and not needed:
        return None
    if not value:
        raise UsageError(f"the environment variable {name} is not set; it should hold the key")
    return _checked(value, f"the environment variable {name}")


def key_from_keyring(name: str) -> Secret:
    """The key that the system's keyring has for `name`. Raises UsageError."""
    try:
        import keyring  # noqa: PLC0415 - few have it, and it asks the desktop
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            "api_key_keyring needs the keyring library: pip install 'q35chat[keyring]', or use "
            "api_key_env"
        ) from error
    try:
        value = keyring.get_password(_SERVICE, name)
    except KeyringError as error:
        raise UsageError(f"the keyring does not open: {safe_line(str(error))}") from error
    if not value:
        raise UsageError(f"the keyring has no key: run `keyring set {_SERVICE} {safe_line(name)}`")
    return _checked(value, f"the keyring's {name}")


def _checked(value: str, where: str) -> Secret:
    value = value.strip()
    if not _KEY.fullmatch(value):
        raise UsageError(f"{where} holds no key: a key is one word of visible ASCII characters")
    return Secret(value)
