"""The build context with its checks."""

from __future__ import annotations

from typing import Any

from tests.doubles.mindspore_lite.checks import check_isinstance

_TARGETS = ["cpu", "gpu", "ascend"]


class Ascend:
    """`context.ascend`."""

    def __init__(self) -> None:
        self._device_id = 0
        self._provider = ""

    @property
    def device_id(self) -> int:
        return self._device_id

    @device_id.setter
    def device_id(self, value: Any) -> None:
        check_isinstance("ascend_device_id", value, int)
        if value < 0:
            raise ValueError("ascend_device_id must be a non-negative int.")
        self._device_id = value

    @property
    def provider(self) -> str:
        return self._provider

    @provider.setter
    def provider(self, value: Any) -> None:
        check_isinstance("ascend_provider", value, str)
        if value not in ("", "ge"):
            raise ValueError(f"ascend_provider must be in ['', 'ge'], but got {value}.")
        self._provider = value


class Cpu:
    """`context.cpu`."""

    def __init__(self) -> None:
        self.thread_num = 0


class Context:
    """`target` first, then the settings of each device."""

    def __init__(self) -> None:
        self.ascend = Ascend()
        self.cpu = Cpu()
        self._target = ["cpu"]

    @property
    def target(self) -> list[str]:
        return self._target

    @target.setter
    def target(self, target: Any) -> None:
        check_isinstance("target", target, list)
        for element in target:
            if element not in _TARGETS:
                raise ValueError(f"target elements must be in {_TARGETS}, but got {element}.")
        self._target = target
