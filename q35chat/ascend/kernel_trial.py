"""What the last trial of the kernels found on this machine, kept for whoever converts here.

It holds as long as the machine, its CANN, its vendor package and its converter stay. Knows the ways
of kernels as words only.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_state_path

from q35chat.errors import RuntimeFailure
from q35chat.files import replace_file
from q35chat.json_reader import Fields, read_json

_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """What the kernels were tried with: the machine's name, the version of CANN, the folders of
    vendor packages, and the converter."""

    host: str
    cann: str
    packages: str
    converter: str

    @classmethod
    def here(cls, environment: Mapping[str, str], cann: str | None, converter: str) -> TrialPlace:
        """This machine as it is now."""
        packages = environment.get("ASCEND_CUSTOM_OPP_PATH", "")
        return cls(platform.node(), cann or "", packages, converter)


@dataclass(frozen=True, slots=True)
class KernelTrial:
    """`kernels` are the ways that work, as `convert` takes them; None where one has none. All that
    was found is in the file `report`."""

    kernels: str | None
    report: str
    place: TrialPlace

    def keep(self) -> None:
        """Write it over the last one; where that fails there is none."""
        with suppress(OSError):
            _file().parent.mkdir(parents=True, exist_ok=True)
            _file().unlink(missing_ok=True)
            replace_file(_file(), json.dumps(asdict(self)) + "\n", mode=_PRIVATE)

    @classmethod
    def kept(cls) -> KernelTrial | None:
        """The last one of this user; None where there is none that can be read."""
        try:
            fields = Fields(read_json(_file()), "the trial", RuntimeFailure)
            place = Fields(fields.raw("place"), "its place", RuntimeFailure)
            names = ("host", "cann", "packages", "converter")
            at = TrialPlace(*(place.text(name) for name in names))
            return cls(fields.text_or_none("kernels"), fields.text("report"), at)
        except (ValueError, RuntimeFailure):
            return None


def _file() -> Path:
    return user_state_path("q35chat") / "npu-kernels.json"
