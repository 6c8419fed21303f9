"""The parts of one loaded model that a turn works with, and what its checkpoint recommends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from q35chat.chat.prompt.kept import KeptStates
from q35chat.chat.prompt.pictures import ModelPictures
from q35chat.chat.prompt.reuse import PrefixCache
from q35chat.chat.prompt.template import ConversationTemplate
from q35chat.chat.prompt.tokenizer import ChatTokenizer
from q35chat.chat.values import SamplingSettings
from q35chat.engine.decoder import Decoder
from q35chat.engine.speculation import Odds
from q35chat.errors import BundleError
from q35chat.json_reader import Fields, read_json
from q35chat.user_input import Speculate

_LARGEST: Final = 1e9
_ADVICE: Final = "export the bundle again"


@dataclass(frozen=True, slots=True)
class Model:
    """One sequence's decoder and everything around it.

    In a `quantised` graph the inputs of a projection are rounded, which makes rounding errors that
    a run of several tokens has and a step has not large enough to change a close choice.
    `speculate` says whether the next tokens may be guessed and computed ahead, `odds` what that
    was worth so far, `head_odds` what it was worth where the model's own head guessed.
    `kept` are the states that outlive the process; None where none do.
    """

    tokenizer: ChatTokenizer
    template: ConversationTemplate
    pictures: ModelPictures
    decoder: Decoder
    cache: PrefixCache
    stop_ids: frozenset[int]
    image_token_id: int
    quantised: bool = False
    speculate: Speculate = "auto"
    odds: Odds = field(default_factory=Odds)
    kept: KeptStates | None = None
    head_odds: Odds = field(default_factory=lambda: Odds(head=True))


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
            config = read_json(path)
        except (OSError, ValueError) as error:
            raise BundleError(f"cannot read {path}: {error}; {_ADVICE}") from error
        if isinstance(config, dict):
            config = {name: value for name, value in config.items() if value is not None}
        fields = Fields(config, f"cannot read {path}: it", BundleError, _ADVICE)
        ends = fields.raw("eos_token_id") if fields.has("eos_token_id") else []
        found = ends if isinstance(ends, list) else [ends]
        stop_ids = [token for token in found if isinstance(token, int)]
        if stop_ids != found:
            raise fields.wrong("eos_token_id", "a token id or a list of them", ends)
        sampling = SamplingSettings(
            temperature=fields.real("temperature", 1.0, least=0.0, most=_LARGEST),
            top_k=int(fields.real("top_k", 50, least=0, most=_LARGEST)),
            top_p=fields.real("top_p", 1.0, least=0.0, most=1.0),
            min_p=fields.real("min_p", 0.0, least=0.0, most=1.0),
            presence_penalty=fields.real("presence_penalty", 0.0, least=-_LARGEST, most=_LARGEST),
            repetition_penalty=fields.real(
                "repetition_penalty", 1.0, least=1 / _LARGEST, most=_LARGEST
            ),
        )
        if not fields.flag("do_sample", default=False):
            sampling = replace(sampling, temperature=0.0)
        return cls(frozenset(stop_ids), sampling)
