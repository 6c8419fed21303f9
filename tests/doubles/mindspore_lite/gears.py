"""What shapes a model with `ge.dynamicDims` accepts."""

from __future__ import annotations


class Gears:
    """Each gear lists the values of the -1s of `input_shape`, in order."""

    def __init__(self, input_shape: str, dynamic_dims: str) -> None:
        self._template = [
            [int(axis) for axis in entry.partition(":")[2].split(",")]
            for entry in input_shape.split(";")
            if entry
        ]
        self._gears = [
            [int(number) for number in gear.split(",")] for gear in dynamic_dims.split(";") if gear
        ]

    def allows(self, shapes: list[list[int]]) -> bool:
        """Whether these concrete shapes of all inputs are a gear; without gears: always."""
        if not self._gears:
            return True
        if len(shapes) != len(self._template):
            return False
        free = []
        for wanted, got in zip(self._template, shapes, strict=True):
            if len(wanted) != len(got):
                return False
            for axis, size in zip(wanted, got, strict=True):
                if axis == -1:
                    free.append(size)
                elif axis != size:
                    return False
        return free in self._gears
