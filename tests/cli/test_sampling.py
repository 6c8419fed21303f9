from __future__ import annotations

import pytest

from q35chat.chat.values import SamplingSettings
from q35chat.commands.sampling import chosen_sampling
from q35chat.errors import UsageError

DEFAULTS = SamplingSettings(temperature=0.7, top_k=20, top_p=0.8)


def test_the_checkpoints_defaults_stay_where_nothing_is_given() -> None:
    assert chosen_sampling(DEFAULTS, {}, greedy=False) == DEFAULTS


def test_an_option_wins_over_its_default_alone() -> None:
    chosen = chosen_sampling(DEFAULTS, {"top_k": 5, "seed": 1}, greedy=False)
    assert chosen == SamplingSettings(temperature=0.7, top_k=5, top_p=0.8, seed=1)


def test_greedy_is_temperature_zero() -> None:
    assert chosen_sampling(DEFAULTS, {}, greedy=True).temperature == 0


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p"])
def test_greedy_with_an_option_it_would_ignore_is_refused(name: str, greedy: bool) -> None:
    given: dict[str, float] = {name: 0.5} if greedy else {name: 0.5, "temperature": 0.0}
    said = f"{'--greedy' if greedy else '--temperature 0'} always .*; drop --{name[:3]}-. or it"
    with pytest.raises(UsageError, match=said):
        chosen_sampling(DEFAULTS, given, greedy=greedy)


def test_greedy_with_a_temperature_is_refused() -> None:
    with pytest.raises(UsageError, match="--greedy always takes the likeliest token; drop --temp"):
        chosen_sampling(DEFAULTS, {"temperature": 0.5}, greedy=True)
