"""Argument checks with the messages of the real library."""

from __future__ import annotations

from typing import Any


def check_isinstance(name: str, value: Any, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind):
        names = [item.__name__ for item in kind] if isinstance(kind, tuple) else kind.__name__
        raise TypeError(f"{name} must be {names}, but got {type(value)}.")


def check_ints(name: str, values: Any) -> None:
    check_isinstance(name, values, (list, tuple))
    for value in values:
        if type(value) is not int:
            raise TypeError(f"{name} element must be int, but got {type(value)}.")


def check_device(device: Any) -> str:
    """None, "ascend" or "ascend:N"; the full form."""
    check_isinstance("device", device, str)
    kind, colon, index = device.partition(":")
    if kind != "ascend":
        raise TypeError("now only support ascend device.")
    if not colon:
        return "ascend:0"
    if not index.lstrip("-").isdigit():
        raise TypeError("device must be 'ascend:index', eg: 'ascend:0'")
    if int(index) < 0:
        raise TypeError("device id should >= 0.")
    return f"ascend:{int(index)}"
