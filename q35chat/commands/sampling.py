"""How the next token is chosen: the checkpoint's own defaults under the user's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from q35chat.chat.values import SamplingSettings
from q35chat.errors import UsageError


def chosen_sampling(
    defaults: SamplingSettings, given: Mapping[str, Any], *, greedy: bool
) -> SamplingSettings:
    """`defaults` with the fields in `given` replaced; `greedy` is temperature 0.

    Raises UsageError where `greedy` meets an option that only matters without it.
    """
    if greedy:
        useless = [name for name in ("temperature", "top_p", "top_k", "min_p") if name in given]
        if useless:
            option = useless[0].replace("_", "-")
            raise UsageError(f"--greedy always takes the likeliest token; drop --{option} or it")
        given = {**given, "temperature": 0.0}
    return replace(defaults, **given)
