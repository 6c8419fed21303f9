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

    Raises UsageError where either meets an option that only matters without it.
    """
    if greedy and "temperature" in given:
        raise _useless("--greedy", "temperature")
    if greedy:
        given = {**given, "temperature": 0.0}
    if given.get("temperature") == 0:
        for name in ("top_p", "top_k", "min_p"):
            if name in given:
                raise _useless("--greedy" if greedy else "--temperature 0", name)
    return replace(defaults, **given)


def _useless(greedy: str, name: str) -> UsageError:
    option = name.replace("_", "-")
    return UsageError(f"{greedy} always takes the likeliest token; drop --{option} or it")
