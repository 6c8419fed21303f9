"""The Python converter, over the fake one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.doubles.fake_converter import convert
from tests.doubles.mindspore_lite.checks import check_isinstance
from tests.doubles.mindspore_lite.types import FmkType, ModelType


class Converter:
    """Settings first, then `convert`, which tells its cause on descriptor 2 alone."""

    def __init__(self) -> None:
        self._optimize = "general"
        self._save_type = ModelType.MINDIR

    @property
    def optimize(self) -> str:
        return self._optimize

    @optimize.setter
    def optimize(self, value: Any) -> None:
        check_isinstance("optimize", value, str)
        kind, _, chip = value.partition(":")
        if kind not in ("none", "general", "gpu_oriented", "ascend_oriented"):
            raise ValueError(f"optimize must be in [...], but got {value}.")
        if chip not in ("", "910b"):
            raise ValueError("chip_name must be in [default, 910b]")
        self._optimize = value

    @property
    def save_type(self) -> ModelType:
        return self._save_type

    @save_type.setter
    def save_type(self, value: Any) -> None:
        check_isinstance("save_type", value, ModelType)
        self._save_type = value

    def convert(
        self,
        fmk_type: Any,
        model_file: Any,
        output_file: Any,
        weight_file: Any = "",
        config_file: Any = "",
    ) -> None:
        check_isinstance("fmk_type", fmk_type, FmkType)
        for name, value in (("model_file", model_file), ("output_file", output_file)):
            check_isinstance(name, value, str)
        if not Path(model_file).exists():
            raise RuntimeError("Perform convert method failed, model_file does not exist!")
        if config_file and not Path(config_file).exists():
            raise RuntimeError("Perform convert method failed, config_file does not exist!")
        if log := convert(Path(model_file), Path(output_file), Path(config_file), os.environ):
            os.write(2, log.encode())
            raise RuntimeError(
                f"Converter model failed! model_file is {model_file}, error is Common error code."
            )
