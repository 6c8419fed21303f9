"""One line of a diagnosis, and how a probe is run so that it cannot fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "info", "warning", "missing", "damaged"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked for, how it is, what was found, and what to do where something is wrong."""

    name: str
    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Checks that belong together."""

    title: str
    checks: tuple[Check, ...]


Probe = Callable[[], Iterable[Check]]


def run_probe(title: str, probe: Probe) -> Group:
    """The checks of `probe`; whatever it raises is a check as well."""
    try:
        return Group(title, tuple(probe()))
    except Exception as error:  # noqa: BLE001  (a diagnosis goes on)
        text = " ".join(str(error).split())
        return Group(title, (Check(title, "warning", f"{type(error).__name__}: {text}"),))
