"""The parts of one loaded model that a turn works with.
----
What the checkpoint itself recommends: `generation_config.json` as values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from q35chat.chat.prompt.pictures import Pictures
from q35chat.chat.prompt.reuse import PrefixCache
from q35chat.chat.prompt.template import ConversationTemplate
from q35chat.chat.prompt.tokenizer import ChatTokenizer, ThinkTags
from q35chat.chat.values import SamplingSettings
from q35chat.engine.decoder import Decoder
from q35chat.engine.speculation import Odds
from q35chat.errors import BundleError
from q35chat.json_reader import read_json
from q35chat.user_input import Speculate


@dataclass(frozen=True, slots=True)
class Model:
    """One sequence's decoder and everything around it.

    In a `quantised` graph the inputs of a projection are rounded, which makes rounding errors that
    a run of several tokens has and a step has not large enough to change a close choice.
    `speculate` says whether the next tokens may be guessed and computed ahead, `odds` what that
    was worth so far, `head_odds` what it was worth where the model's own head guessed.
    """

    tokenizer: ChatTokenizer
    tags: ThinkTags
    template: ConversationTemplate
    pictures: Pictures
    decoder: Decoder
    cache: PrefixCache
    stop_ids: frozenset[int]
    image_token_id: int
    quantised: bool = False
    speculate: Speculate = "auto"
    odds: Odds = field(default_factory=Odds)
    head_odds: Odds = field(default_factory=lambda: Odds(head=True))


_LARGEST: Final = 1e9


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Ids that end an answer, and how tokens are chosen if the user does not say."""

    stop_ids: frozenset[int]
    sampling: SamplingSettings

    @classmethod
    def read(cls, path: Path) -> GenerationDefaults:
        """The defaults in the file at `path`; greedy and no stop ids where there is none.

        Raises BundleError for a file that is not what it should be.
        """
        if not path.is_file():
            return cls(frozenset(), SamplingSettings(temperature=0.0))
        try:
            return _parse(read_json(path))
        except (OSError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise BundleError(f"cannot read {path}: {error}; export the bundle again") from error


def _parse(config: Mapping[str, Any]) -> GenerationDefaults:
    ends = config.get("eos_token_id")
    stop_ids = [] if ends is None else [ends] if isinstance(ends, int) else ends
    sampling = SamplingSettings(
        temperature=_number(config, "temperature", 1.0, least=0.0),
        top_k=int(_number(config, "top_k", 50, least=0)),
        top_p=_number(config, "top_p", 1.0, least=0.0, most=1.0),
        min_p=_number(config, "min_p", 0.0, least=0.0, most=1.0),
        presence_penalty=_number(config, "presence_penalty", 0.0, least=-_LARGEST),
        repetition_penalty=_number(config, "repetition_penalty", 1.0, least=1 / _LARGEST),
    )
    return GenerationDefaults(
        frozenset(int(token) for token in stop_ids),
        sampling if config.get("do_sample", False) else replace(sampling, temperature=0.0),
    )


def _number(
    config: Mapping[str, Any], name: str, default: float, *, least: float, most: float = _LARGEST
) -> float:
    given = config.get(name)
    value = default if given is None else float(given)
    if not least <= value <= most:  # neither is NaN
        raise ValueError(f"{name} is {given}, which is not between {least:g} and {most:g}")
    return value
